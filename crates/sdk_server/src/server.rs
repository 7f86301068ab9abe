//! Serving processes with the SDK.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tailscope_kernel::SdkPrograms;
use tailscope_process::owner;
use tailscope_process::owner::program_of;
use tailscope_process::rooted;
use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::retention::Retention;
use tailscope_symbols::sdk::{Address, SdkFile};

use crate::admission::Admission;
use crate::client::{Client, Sink};
use crate::finder::Finder;
use crate::problems::Problems;
use crate::region::RegionLoss;
use crate::sockets::{ConnectionRequest, Refusal, ServeError, Sockets};

/// The longest that a request waits for its answer, and how soon it is looked at again.
const PATIENCE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_millis(5);
/// The most requests that wait at a time.
const MOST_WAITING: usize = 256;

/// What was lost or refused so far, also of processes that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Rows that found no room in their region.
    pub full: u64,
    /// Rows or chunks of rows that made no sense.
    pub malformed: u64,
    /// Requests of processes that are not watched.
    pub unwatched: u64,
    /// Requests of watched processes that got no memory.
    pub refused: u64,
}

impl Losses {
    fn add(&mut self, loss: RegionLoss) {
        self.full += loss.full;
        self.malformed += loss.malformed;
    }
}

/// How a recorder learns that a process runs another program: what the former one got is outdated then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Execs {
    /// By process events: it [forgets](Server::forget) such a process before the next request of it.
    Reported,
    /// By its connections alone: the kernel closes them at the exec.
    Unreported,
}

/// All processes with the SDK. `N` stands for the name of a span ([`Sink::Name`]).
#[derive(Debug)]
pub struct Server<N> {
    sockets: Sockets,
    finder: Finder,
    clients: HashMap<u32, Client<N>>,
    /// Requests whose processes may be about to be watched, or are still searched for the SDK.
    waiting: Vec<ConnectionRequest>,
    admission: Admission,
    execs: Execs,
    sample: u64,
    /// Which rows are kept of a name that is not known yet. Times in cycles.
    unknown: Retention,
    /// The group of events that is counted now, and its number.
    counted: (u16, Vec<abi::ts_event>),
    /// Of processes that have ended.
    past: Losses,
    past_spans: u64,
    problems: Problems,
}

impl<N: Copy> Server<N> {
    /// Starts serving, with a thread that searches files. `sample`: the probability that a span is
    /// metered, of 2^32. `unknown`: which rows are kept of a name that is not known yet, times in cycles.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn start(
        sockets: Sockets,
        execs: Execs,
        sample: u64,
        unknown: Retention,
    ) -> io::Result<Self> {
        Ok(Self {
            finder: Finder::start(sockets.address())?,
            sockets,
            clients: HashMap::new(),
            waiting: Vec::new(),
            admission: Admission::default(),
            execs,
            sample,
            unknown,
            counted: (0, Vec::new()),
            past: Losses::default(),
            past_spans: 0,
            problems: Problems::default(),
        })
    }

    /// At which of the addresses it listens.
    #[must_use]
    pub fn address(&self) -> Address {
        self.sockets.address()
    }

    /// The path of the socket for everybody.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.sockets.path()
    }

    /// See [`Sockets::take_over`].
    ///
    /// # Errors
    /// The other recorder goes on.
    pub fn take_over(&mut self) -> Result<(), ServeError> {
        self.sockets.take_over()
    }

    /// Readable when a request waits at a socket that accepts at the moment.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.fds()
    }

    /// How soon to poll again even if nothing is readable. `None`: no hurry.
    #[must_use]
    pub fn poll_again_in(&self) -> Option<Duration> {
        if !self.waiting.is_empty() {
            Some(SOON)
        } else {
            self.sockets.pauses().then_some(Sockets::PAUSE)
        }
    }

    /// Whether the request of such a process waits.
    pub fn any_waits(&self, is_such: impl Fn(u32) -> bool) -> bool {
        let mut waiting = self.waiting.iter().map(ConnectionRequest::pid);
        waiting.any(is_such)
    }

    /// Opens a socket for the user of a process.
    pub fn open_for_user_of(&mut self, pid: u32) {
        if let Some(user) = owner::of(pid) {
            self.sockets.open_for(user);
        }
    }

    /// Asks for the files of a process to be searched. False: too many wait, ask again later.
    pub fn search(&mut self, pid: u32) -> bool {
        self.finder.search(pid)
    }

    /// Attaches to the SDK in a program file, before a process runs it. Problems with the file are
    /// reported.
    pub fn attach_program(&mut self, file: &Path, programs: &mut SdkPrograms<'_>) {
        let read = |held| SdkFile::read(held, file.to_owned(), self.sockets.address());
        match rooted::follow(file).and_then(read) {
            Ok(Some(found)) => self.attach(&found, 0, programs),
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {} // no process runs it yet
            Err(e) => self.problems.add_unread(file, &e),
        }
    }

    /// Attaches to the SDK in the files that were found since the last time. A problem with one file is
    /// reported, and the others go on.
    pub fn attach_found(
        &mut self,
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
    ) {
        for answer in self.finder.answers() {
            if !is_watched(answer.pid) {
                continue;
            }
            for file in &answer.files {
                self.attach(file, answer.pid, programs);
            }
            for (path, why) in &answer.unread {
                self.problems.add_unread(path, why);
            }
            for path in &answer.for_another {
                self.problems.add_for_another(path);
            }
        }
    }

    fn attach(&mut self, file: &SdkFile, pid: u32, programs: &mut SdkPrograms<'_>) {
        if let Err(e) = programs.attach(file, pid) {
            self.problems.add(e.to_string());
        }
    }

    /// Problems with single files since the last time, each once.
    pub fn take_problems(&mut self) -> Vec<String> {
        self.problems.take()
    }

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
        // By now a process has mapped its libraries, and the SDK for Java has made its file in memory.
        let pids: BTreeSet<u32> = new.iter().map(ConnectionRequest::pid).collect();
        for pid in pids {
            if is_watched(pid) {
                self.search(pid);
            }
        }
        self.attach_found(programs, &is_watched);
        // A program with the SDK in its own file connects only after that is attached to. The SDK for Java
        // runs its probe as soon as it is answered, so its file has to be found first.
        let has_attached = |pid| program_of(pid).is_some_and(|file| programs.is_attached(file));
        let waits = |pid| is_undecided(pid) || self.finder.is_searching(pid) && !has_attached(pid);
        let is_early = |request: &ConnectionRequest| {
            request.age() < PATIENCE && !request.is_closed() && waits(request.pid())
        };
        let mut requests = std::mem::take(&mut self.waiting);
        requests.extend(new);
        let (mut later, now): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_early);
        later.truncate(MOST_WAITING);
        self.waiting = later;
        for request in now {
            self.answer_one(request, programs, &is_watched);
        }
        // The next process waits in its first span for the answer, so what it gets is made now. If there
        // is no room for one more, its own request says so.
        let _ = programs.prepare_meters();
    }

    fn answer_one(
        &mut self,
        request: ConnectionRequest,
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
    ) {
        let pid = request.pid();
        if !is_watched(pid) {
            self.past.unwatched += 1;
            return request.refuse(Refusal::NotWatched);
        }
        if request.is_closed() {
            return; // making what a process gets takes time
        }
        let is_new = !self.clients.contains_key(&pid);
        if is_new && self.admission.admits(request.user(), Instant::now()) {
            self.create_client(pid, programs);
        }
        let known = self.clients.get_mut(&pid);
        let with_room = known.and_then(|of| of.connections.has_room().then_some(of));
        let Some(client) = with_room else {
            self.past.refused += 1;
            return request.refuse(Refusal::NoRoom);
        };
        if let Some(meters) = programs.meters_of(pid)
            && let Ok(connection) = request.grant(meters, client.region_fd())
        {
            client.connections.add(connection);
        }
    }

    fn create_client(&mut self, pid: u32, programs: &mut SdkPrograms<'_>) {
        match Client::create(pid, programs, self.sample, self.unknown) {
            Ok(mut client) => {
                client.count(self.counted.0, &self.counted.1);
                self.clients.insert(pid, client);
            }
            Err(_) => programs.take_back_meters(pid), // its request is refused
        }
    }

    /// Writes a heartbeat into all regions. After `overdue` cycles without one, the SDK checks its
    /// connection.
    pub fn heartbeat(&self, now: Cycles, overdue: u64) {
        for client in self.clients.values() {
            client.heartbeat(now, overdue);
        }
    }

    /// Has all processes count these events from now on, also those that connect later.
    pub fn count(&mut self, group: u16, events: Vec<abi::ts_event>) {
        for client in self.clients.values_mut() {
            client.count(group, &events);
        }
        self.counted = (group, events);
    }

    /// The processes in which a thread can't count, and why. Each process once.
    pub fn refusals(&mut self) -> Vec<(u32, io::Error)> {
        let clients = self.clients.iter_mut();
        clients
            .filter_map(|(pid, client)| Some((*pid, client.refusal()?)))
            .collect()
    }

    /// Sets which rows all processes write, by name. Times in cycles.
    pub fn keep(&self, of: impl Fn(N) -> Retention) {
        for client in self.clients.values() {
            client.keep(&of);
        }
    }

    /// The same for names that are not known yet, of processes that connect from now on.
    pub fn keep_unknown(&mut self, retention: Retention) {
        self.unknown = retention;
    }

    /// Takes what all processes have written.
    pub fn drain(&mut self, sink: &mut impl Sink<Name = N>) {
        for (pid, client) in &mut self.clients {
            client.drain(*pid, sink);
        }
    }

    /// A process has ended, or runs another program: takes the last of what it has written. False: it was
    /// not connected. The caller takes back its meters.
    pub fn forget(&mut self, pid: u32, sink: &mut impl Sink<Name = N>) -> bool {
        let Some(mut client) = self.clients.remove(&pid) else {
            return false;
        };
        client.drain(pid, sink);
        self.past.add(client.loss());
        self.past_spans += client.spans();
        true
    }

    /// The processes that are connected.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.clients.keys().copied()
    }

    /// Drops closed connections: each holds a descriptor.
    pub fn drop_closed(&mut self) {
        let clients = self.clients.values_mut();
        clients.for_each(|client| client.connections.drop_closed());
    }

    /// What was lost or refused so far.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = self.past;
        for client in self.clients.values() {
            losses.add(client.loss());
        }
        losses
    }

    /// Spans that ended so far, kept or not. Reads 2,048 cache lines of each process: not for every poll.
    #[must_use]
    pub fn spans(&self) -> u64 {
        let now: u64 = self.clients.values().map(Client::spans).sum();
        self.past_spans + now
    }
}
