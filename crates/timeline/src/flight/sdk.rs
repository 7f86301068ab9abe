//! Programs with the SDK (`sdk/`), which mark their spans themselves. Their rows become events in a ring
//! of its own.

mod names;
mod spans;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tailscope_kernel::timeline::Events;
use tailscope_process::MappedSizes;
use tailscope_process::owner;
use tailscope_sdk_server::sockets::{ConnectionRequest, ServeError, Sockets};
use tailscope_sdk_server::{Execs, Server};
use tailscope_signals::clock::{Cycles, Monotonic};
use tailscope_signals::event::Event;
use tailscope_signals::event_ring::EventRings;
use tailscope_signals::retention::Retention;

use spans::Spans;

/// All spans are metered: the probability, of 2^32.
const ALL: u64 = 1 << 32;

/// How often the watched processes are looked at. Each connection request makes a poll: a flood of them
/// must not have all processes looked at each time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The recorder's side of all of them.
pub(super) struct Sdk {
    server: Server<u16>,
    spans: Spans,
    /// When each process that was searched for the SDK began its program, in ns.
    programs: HashMap<u32, u64>,
    /// How much memory they had mapped then.
    mapped: MappedSizes,
    looked_at: Option<Instant>,
    /// The processes that were watched then, and those that requested since.
    watched: HashSet<u32>,
    /// Processes whose failure to connect was reported.
    refused: HashSet<u32>,
}

impl Sdk {
    /// `names`: of the spans that have numbers already. `slots`: how many spans are kept.
    pub(super) fn start(
        sockets: Sockets,
        names: Vec<String>,
        slots: u32,
    ) -> Result<Self, ServeError> {
        let failed = |what: &str| {
            let path = PathBuf::from(what);
            move |source| ServeError::System { path, source }
        };
        let ring = EventRings::ours(slots).map_err(failed("memory for spans"))?;
        Ok(Self {
            server: Server::start(sockets, Execs::Unreported, ALL, Retention::ALL)
                .map_err(failed("a thread"))?,
            spans: Spans::new(ring, names),
            programs: HashMap::new(),
            mapped: MappedSizes::default(),
            looked_at: None,
            watched: HashSet::new(),
            refused: HashSet::new(),
        })
    }

    /// The ring that holds the spans.
    pub(super) fn ring(&self) -> &Arc<EventRings> {
        self.spans.ring()
    }

    /// The names of spans, by their numbers.
    pub(super) fn names(&self) -> &[String] {
        self.spans.names()
    }

    /// By how much, in ns, the times of spans since then may be wrong: `Clock::off_ns`.
    pub(super) fn clock_off_ns(&self, since: u64) -> u64 {
        self.spans.clock().off_ns(Monotonic(since))
    }

    /// Readable when a connection request waits, or a file with the SDK was found.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.server.fds()
    }

    /// How soon to poll again even if nothing is readable. `None`: no hurry.
    pub(super) fn poll_again_in(&self) -> Option<Duration> {
        self.server.poll_again_in()
    }

    /// Spans that were lost: their region had no room, their rows made no sense, or their process got no
    /// memory. Of such a process one span is counted, as nothing says how many it has.
    pub(super) fn lost(&self) -> u64 {
        let lost = self.server.losses();
        lost.full + lost.malformed + lost.refused + self.spans.malformed()
    }

    /// Answers connection requests, and writes heartbeats.
    pub(super) fn answer(&mut self, events: &mut Events) {
        let requests = self.server.accept();
        for pid in requests.iter().map(ConnectionRequest::pid) {
            match events.is_watched(pid) {
                true => self.watched.insert(pid),
                false => self.watched.remove(&pid),
            };
        }
        for pid in self.server.outdated(&requests) {
            self.forget(pid, events);
        }
        let is_watched = |pid| self.watched.contains(&pid);
        self.server
            .answer(requests, &mut events.sdk(), is_watched, |_| false);
        let clock = self.spans.clock();
        self.server.heartbeat(Cycles::now(), clock.hz());
    }

    /// Searches watched processes that run another program than before, and forgets those that have ended.
    /// `thoroughly`: searches all that have mapped more, for libraries. What to tell the person is returned.
    pub(super) fn search(&mut self, events: &mut Events, thoroughly: bool) -> Vec<String> {
        let is_recent = |at: Instant| at.elapsed() < LOOK_EVERY;
        if !thoroughly && self.looked_at.is_some_and(is_recent) {
            return Vec::new();
        }
        self.looked_at = Some(Instant::now());
        let programs = events.programs();
        self.watched = programs.iter().map(|(pid, _)| *pid).collect();
        self.forget_ended(events);
        for (pid, began) in programs {
            let is_new = self.programs.insert(pid, began) != Some(began);
            if is_new {
                self.mapped.forget(pid); // so it is searched a second later, if not now
            }
            if thoroughly {
                if self.mapped.have_changed(pid) && !self.server.search(pid) {
                    self.mapped.forget(pid); // it is searched a second later
                }
            } else if is_new
                && let (Some(program), Some(user)) = (owner::program_of(pid), owner::of(pid))
            {
                self.server.search_program(pid, program, user);
            }
        }
        let is_watched = |pid| self.watched.contains(&pid);
        self.server.attach_found(&mut events.sdk(), is_watched);
        let mut notes = self.server.take_problems();
        if thoroughly {
            self.server.drop_closed();
            notes.extend(self.refusal(events));
        }
        notes
    }

    fn forget_ended(&mut self, events: &mut Events) {
        let programs = self.programs.keys().copied();
        let known: HashSet<u32> = programs.chain(self.server.processes()).collect();
        let ended: Vec<u32> = known.difference(&self.watched).copied().collect();
        for pid in ended {
            self.programs.remove(&pid);
            self.forget(pid, events);
        }
        self.refused.retain(|pid| self.watched.contains(pid));
    }

    /// Attaches to the SDK in a program file, before a process runs it.
    pub(super) fn attach_program(&mut self, file: &Path, events: &mut Events) {
        self.server.attach_program(file, &mut events.sdk());
    }

    fn refusal(&mut self, events: &Events) -> Option<String> {
        let (pid, errno) = events.lost().refused?;
        self.refused.insert(pid).then(|| {
            format!(
                "process {pid} can't reach the recorder at {}: {}; its SDK spans are not recorded",
                self.server.socket_path().display(),
                io::Error::from_raw_os_error(errno)
            )
        })
    }

    /// Hands on the spans that ended since the last time, in the order of their ends, and keeps them.
    pub(super) fn take(&mut self, each: impl FnMut(&Event)) {
        self.spans.refine_clock();
        self.server.drain(&mut self.spans);
        self.spans.hand_on(each);
    }

    /// A process has ended, or runs another program: takes the last of what it has written.
    fn forget(&mut self, pid: u32, events: &mut Events) {
        self.mapped.forget(pid);
        self.spans.refine_clock();
        if self.server.forget(pid, &mut self.spans) {
            events.sdk().take_back_meters(pid);
        }
        events.sdk().forget(pid);
    }
}
