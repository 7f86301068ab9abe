//! Answering the processes that connect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tailscope_kernel::SdkPrograms;
use tailscope_process::owner::program_of;

use super::{Execs, Server};
use crate::client::Client;
use crate::sockets::{ConnectionRequest, Refusal, with_closed};

/// The longest that a request waits for its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Maps of meters that are kept for users none of whose processes has come recently. One user's processes
/// that come all the time would take each as soon as it is made, and others would wait for the next.
const RESERVE: usize = 2;

impl<N: Copy> Server<N> {
    /// Accepts requests. To be called before process events are read: the kernel reports a child or a new
    /// program before that can connect. A child would be refused as unwatched otherwise, and a late
    /// report of a new program would remove it after it has connected.
    #[must_use]
    pub fn accept(&mut self) -> Vec<ConnectionRequest> {
        self.sockets.accept()
    }

    /// The processes among those that request whose memory is of a program that is gone. To be
    /// [forgotten](Self::forget) before the requests are answered.
    #[must_use]
    pub fn outdated(&self, requests: &[ConnectionRequest]) -> BTreeSet<u32> {
        let pids = requests.iter().map(ConnectionRequest::pid);
        pids.filter(|pid| {
            self.clients.get(pid).is_some_and(|client| {
                let may_be_new = self.execs == Execs::Unreported;
                client.is_anothers(*pid) || may_be_new && client.connections.are_closed()
            })
        })
        .collect()
    }

    /// Answers new requests, and those that wait. Requests of processes that may be about to be watched
    /// (`is_undecided`), and of watched ones whose files are still searched, wait on.
    pub fn answer(
        &mut self,
        new: Vec<ConnectionRequest>,
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
        is_undecided: impl Fn(u32) -> bool,
    ) {
        // By now a process has mapped its libraries, and the SDK for Java has made its file in memory. If
        // its program has the SDK, its first request is that one's, and most often there is no other: of a
        // user whose processes come all the time, those are searched a second later with all others.
        let pids: BTreeMap<u32, u32> = new.iter().map(|new| (new.pid(), new.user())).collect();
        let now = Instant::now();
        // A process that will be refused is not searched.
        let may_be_served =
            |pid, user| self.clients.contains_key(&pid) || self.admission.has_left(user, now);
        let served: Vec<(u32, u32)> = pids
            .into_iter()
            .filter(|(pid, user)| is_watched(*pid) && may_be_served(*pid, *user))
            .collect();
        for (pid, user) in served {
            let attached = program_of(pid).filter(|file| programs.is_attached(*file));
            let first = attached.filter(|_| !self.clients.contains_key(&pid));
            let is_due = first.is_none_or(|file| {
                let is_rare = self.admission.is_rare(user, now);
                is_rare && self.connecting.is_due(pid, (file, user), now)
            });
            if is_due && !self.finder.search(pid, user) {
                self.connecting.searched(pid, None, now);
            }
        }
        self.attach_found(programs, &is_watched);
        // A program with the SDK in its own file connects only after that is attached to. The SDK for Java
        // runs its probe as soon as it is answered, so its file has to be found first.
        let has_attached = |pid| program_of(pid).is_some_and(|file| programs.is_attached(file));
        let waits = |pid| is_undecided(pid) || self.finder.is_searching(pid) && !has_attached(pid);
        let mut requests = self.waiting.take();
        requests.extend(new);
        let is_early = |(request, is_closed): &(ConnectionRequest, bool)| {
            !is_closed && request.age() < PATIENCE && waits(request.pid())
        };
        let (later, due): (Vec<_>, Vec<_>) = with_closed(requests).partition(is_early);
        later
            .into_iter()
            .for_each(|(request, _)| self.wait(request));
        // The next process waits in its first span for the answer, so what it gets is made before. If there
        // is no room for one more, its own request says so.
        let _ = programs.prepare_meters();
        for (request, is_closed) in due {
            self.answer_one((request, is_closed), programs, &is_watched, now);
        }
        let _ = programs.prepare_meters();
    }

    fn answer_one(
        &mut self,
        (request, is_closed): (ConnectionRequest, bool),
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
        now: Instant,
    ) {
        let pid = request.pid();
        if !is_watched(pid) {
            self.past.unwatched += 1;
            return request.refuse(Refusal::NotWatched);
        }
        if is_closed {
            return;
        }
        let is_new =
            !self.clients.contains_key(&pid) && self.admission.has_left(request.user(), now);
        if is_new && self.has_to_wait(&request, programs) {
            return self.wait(request);
        }
        if is_new && request.is_closed() {
            return; // making what a process gets takes time
        }
        if is_new && self.admission.admits(request.user(), now) {
            self.create_client((pid, request.user()), programs);
        }
        let known = self.clients.get_mut(&pid);
        let with_room = known.and_then(|of| of.connections.has_room().then_some(of));
        let Some(client) = with_room else {
            return self.refuse(request);
        };
        if let Some(meters) = programs.meters_of(pid)
            && let Ok(connection) = request.grant(meters, client.region_fd())
        {
            client.connections.add(connection);
        }
    }

    /// Whether the map of meters for a new process is still being made.
    fn has_to_wait(&self, request: &ConnectionRequest, programs: &SdkPrograms<'_>) -> bool {
        let is_rare = self.admission.is_rare(request.user(), Instant::now());
        let reserve = if is_rare { 0 } else { RESERVE };
        let ready = programs.meters_ready();
        request.age() < PATIENCE && ready.is_some_and(|ready| ready <= reserve)
    }

    fn wait(&mut self, request: ConnectionRequest) {
        if let Err(request) = self.waiting.add(request.user(), request) {
            self.refuse(request);
        }
    }

    fn refuse(&mut self, request: ConnectionRequest) {
        self.past.refused += 1;
        request.refuse(Refusal::NoRoom);
    }

    fn create_client(&mut self, (pid, user): (u32, u32), programs: &mut SdkPrograms<'_>) {
        match Client::create((pid, user), programs, self.sample, self.unknown) {
            Ok(mut client) => {
                client.count(self.counted.0, &self.counted.1);
                self.clients.insert(pid, client);
            }
            Err(_) => programs.take_back_meters(pid), // its request is refused
        }
    }
}
