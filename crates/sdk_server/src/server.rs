//! Serving processes with the SDK.

mod answer;

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tailscope_kernel::SdkPrograms;
use tailscope_process::owner::{self, FileId};
use tailscope_process::rooted;
use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::retention::Retention;
use tailscope_symbols::sdk::{Address, SdkFile};

use crate::admission::Admission;
use crate::client::{Client, Sink};
use crate::finder::{Answer, Finder};
use crate::losses::Losses;
use crate::problems::Problems;
use crate::programs::Programs;
use crate::sockets::{ConnectionRequest, ServeError, Sockets};
use crate::waiting::Waiting;

/// How soon a request that waits is looked at again.
const SOON: Duration = Duration::from_millis(5);

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
    /// The programs that processes run.
    started: Programs,
    /// The programs of processes that connect: by then they have mapped their libraries.
    connecting: Programs,
    clients: HashMap<u32, Client<N>>,
    /// Requests whose processes may be about to be watched, or are still searched for the SDK, or for which
    /// no map of meters is ready.
    waiting: Waiting<ConnectionRequest>,
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
            started: Programs::default(),
            connecting: Programs::default(),
            clients: HashMap::new(),
            waiting: Waiting::default(),
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

    /// Readable when a request waits at a socket that accepts at the moment, or a file with the SDK was found.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.fds().chain([self.finder.fd()])
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

    /// A user's process runs another program: as [`search`](Self::search), unless the same program was
    /// searched just now. False: ask again a second later.
    pub fn search_program(&mut self, pid: u32, program: FileId, user: u32) -> bool {
        let now = Instant::now();
        let is_due = self.started.is_due(pid, (program, user), now);
        let asked = is_due && self.search_of(pid, user);
        if is_due && !asked {
            self.started.searched(pid, None, now);
        }
        asked
    }

    /// Asks for the files of a process to be searched, and opens a socket for its user. False: too many
    /// wait, or the user has as many clients as may be: ask again later.
    pub fn search(&mut self, pid: u32) -> bool {
        let user = owner::of(pid);
        user.is_none_or(|user| self.search_of(pid, user))
    }

    fn search_of(&mut self, pid: u32, user: u32) -> bool {
        self.sockets.open_for(user);
        self.admission.has_left(user, Instant::now()) && self.finder.search(pid, user)
    }

    /// Whether what was found in some process has still to be [attached to](Self::attach_found).
    #[must_use]
    pub fn is_searching(&self) -> bool {
        self.finder.is_searching_any()
    }

    /// Attaches to the SDK in a program file, before a process runs it. Problems with the file are
    /// reported.
    pub fn attach_program(&mut self, file: &Path, programs: &mut SdkPrograms<'_>) {
        let read = |held| SdkFile::read(held, file.to_owned(), self.sockets.address());
        match rooted::follow(file).and_then(read) {
            // The recorder's own choice is of no process.
            Ok(Some(found)) => self.attach(&found, (0, 0), programs),
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
        let answers = self.finder.answers();
        self.attach_all(answers, programs, is_watched);
    }

    /// The same, and waits a moment for what is being searched. Not for a poll: requests wait meanwhile.
    pub fn attach_soon_found(
        &mut self,
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
    ) {
        let answers = self.finder.answers_soon();
        self.attach_all(answers, programs, is_watched);
    }

    fn attach_all(
        &mut self,
        answers: Vec<Answer>,
        programs: &mut SdkPrograms<'_>,
        is_watched: impl Fn(u32) -> bool,
    ) {
        let now = Instant::now();
        for answer in answers {
            self.started.searched(answer.pid, answer.program, now);
            self.connecting.searched(answer.pid, answer.program, now);
            if !is_watched(answer.pid) {
                continue;
            }
            for file in &answer.files {
                self.attach(file, (answer.pid, answer.user), programs);
            }
            for (path, why) in &answer.unread {
                self.problems.add_unread(path, why);
            }
            for path in &answer.for_another {
                self.problems.add_for_another(path);
            }
        }
    }

    fn attach(&mut self, file: &SdkFile, (pid, user): (u32, u32), programs: &mut SdkPrograms<'_>) {
        if let Err(e) = programs.attach(file, pid, user) {
            self.problems.add(e.to_string());
        }
    }

    /// Problems with single files since the last time, each once.
    pub fn take_problems(&mut self) -> Vec<String> {
        self.problems.take()
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
        self.admission
            .ended(client.user(), client.age(), Instant::now());
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
