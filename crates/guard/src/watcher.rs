//! The thread that fills the hazard words: it loads the kernel's programs where it may, finds the
//! replicas' processes and JVMs, and wakes whoever waits for a change.
//!
//! Without the kernel's programs it polls `/proc` for stopped and ended processes.

mod drain;
mod poll;
mod search;
mod sources;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tailscope_kernel::hazard::{Hazards, SLOTS};
use tailscope_kernel::{Also, drop_capabilities};
use tailscope_signals::hazard::{Active, Change, Kind, Words};

use self::drain::Drain;
use crate::board::{Board, Coverage};
use crate::hsperf::Collectors;
use crate::remote::Source;
use crate::target::Target;

/// Between two looks at waits for a CPU, which no event announces: where a thread waits, and else.
/// A request that is picked a replica for reads the word itself.
const LOOK: Duration = Duration::from_millis(1);
const GLANCE: Duration = Duration::from_millis(5);
/// Between two looks at `/proc` where it is polled.
const POLL: Duration = Duration::from_millis(5);
/// Where there is nothing to look at: between two looks at the time.
const REST: Duration = Duration::from_millis(50);
/// Between two searches for processes that come and go.
const SEARCH: Duration = Duration::from_millis(250);

/// What is worth telling, in words.
pub type Say = Box<dyn Fn(&str) + Send>;

/// What a [`Watcher`] watches, and how.
#[derive(Debug, Default)]
pub struct Subject {
    /// Each in the slot of its number.
    pub targets: Vec<Target>,
    /// Whether a JVM whose eden is nearly full is kept from requests, and asked to collect.
    pub drains: bool,
    /// Publishers that are asked for what this process can't see itself.
    pub sources: Vec<Source>,
}

/// Which replica is watched in which slot, and who waits until it is.
struct Order {
    targets: Vec<(u32, Target)>,
    done: Sender<()>,
}

/// The running thread. Ends when dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    refused: Option<String>,
    silent: Vec<SocketAddr>,
}

impl Watcher {
    /// Starts to watch. `each` is called in the thread for each change.
    ///
    /// # Errors
    /// If there is no memory, thread or descriptor.
    pub fn start(
        subject: Subject,
        say: Say,
        mut each: impl FnMut(&Board, Change) + Send + 'static,
    ) -> std::io::Result<(Self, Arc<Board>)> {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (ends, woken) = (Arc::clone(&stop), Arc::clone(&wake));
        let (sender, started) = channel();
        let (orders, received) = channel();
        // What belongs to the programs stays in the thread that loads them.
        let thread = std::thread::Builder::new()
            .name("hazards".into())
            .spawn(move || {
                let begun = Work::begin(subject, say);
                let (work, told) = match begun {
                    Ok((work, refused)) => {
                        let known = (Arc::clone(&work.board), refused, work.silent_sources());
                        (Some(work), Ok(known))
                    }
                    Err(e) => (None, Err(e)),
                };
                let _ = sender.send(told);
                if let Some(work) = work {
                    work.run(&ends, &woken, &received, &mut each);
                }
            })?;
        let gone = |_| std::io::Error::other("the thread of the hazards has ended");
        let (board, refused, silent) = started.recv().map_err(gone)??;
        let watcher = Self {
            stop,
            wake,
            orders,
            thread: Some(thread),
            refused,
            silent,
        };
        Ok((watcher, board))
    }

    /// Why the kernel's programs are not used; `None`: they are.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Publishers that did not answer at the start.
    #[must_use]
    pub fn silent(&self) -> &[SocketAddr] {
        &self.silent
    }

    /// Watches these targets in these slots from now on, and no others. Returns when their processes
    /// were searched for.
    pub fn watch(&self, targets: Vec<(u32, Target)>) {
        let (done, finished) = channel();
        if self.orders.send(Order { targets, done }).is_ok() {
            self.wake();
            let _ = finished.recv(); // it fails only if the thread has ended
        }
    }

    fn wake(&self) {
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One replica that is watched.
struct Seat {
    slot: u32,
    target: Target,
    /// Its processes.
    pids: Vec<u32>,
    /// How much of it is seen here.
    coverage: Coverage,
    /// Which of the sources reports its hazards.
    remote: Option<usize>,
    /// Which life of it a source has reported last.
    life: Option<u32>,
    /// What held when it was last looked.
    before: Active,
    /// Searches since one of its processes was found.
    tries: u32,
    /// Whether it ever had one.
    has_lived: bool,
    drain: Drain,
}

impl Seat {
    fn new(slot: u32, target: Target) -> Self {
        Self {
            slot,
            target,
            pids: Vec::new(),
            coverage: Coverage::None,
            remote: None,
            life: None,
            before: Active::default(),
            tries: 0,
            has_lived: false,
            drain: Drain::default(),
        }
    }
}

struct Work {
    seats: Vec<Seat>,
    /// Whether replicas are drained before they collect.
    drains: bool,
    hazards: Option<Hazards>,
    sources: Vec<Source>,
    /// When they were last read.
    read: Instant,
    board: Arc<Board>,
    /// Libraries of JVMs that were looked at, by device and inode, and whether they have probes.
    libraries: HashSet<(u64, u64)>,
    listens: HashSet<(u64, u64)>,
    /// By process: how often it was looked at, and whether it is a JVM with probes.
    looks: HashMap<u32, (u32, bool)>,
    /// By process: HotSpot's counters, where they are needed.
    collectors: HashMap<u32, Collectors>,
    say: Say,
}

impl Work {
    /// Loads the programs, if that is possible, and finds the processes. The second: why it is not.
    fn begin(subject: Subject, say: Say) -> std::io::Result<(Self, Option<String>)> {
        let drains = subject.drains;
        let (hazards, refused) = match Hazards::load() {
            Ok(hazards) => (Some(hazards), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let words = match &hazards {
            Some(hazards) => hazards.map_words()?,
            None => Words::in_memory(SLOTS)?,
        };
        let seats = (0..)
            .zip(subject.targets)
            .map(|(slot, to)| Seat::new(slot, to));
        let mut work = Self {
            seats: seats.collect(),
            drains,
            board: Arc::new(Board::new(words, SLOTS as usize)),
            hazards,
            sources: subject.sources,
            read: Instant::now(),
            libraries: HashSet::new(),
            listens: HashSet::new(),
            looks: HashMap::new(),
            collectors: HashMap::new(),
            say,
        };
        // A JVM is asked to collect by a signal, and a socket that is its user's alone.
        let also = [
            (Also::AttachProbes, work.hazards.is_some()),
            (Also::EndCommand, drains),
            (Also::WriteAnywhere, drains),
        ];
        drop_capabilities(also).map_err(std::io::Error::other)?;
        // Before anybody is served, so that the first request finds the words right.
        work.search();
        work.subscribe();
        work.wait_for_sources(&mut |_, _| {});
        Ok((work, refused))
    }

    fn run(
        mut self,
        stop: &AtomicBool,
        wake: &OwnedFd,
        orders: &Receiver<Order>,
        each: &mut dyn FnMut(&Board, Change),
    ) {
        let mut searched = Instant::now();
        while !stop.load(Relaxed) {
            self.wait(wake);
            self.take(each);
            let mut obeyed = Vec::new();
            while let Ok(order) = orders.try_recv() {
                self.obey(order.targets);
                obeyed.push(order.done);
            }
            if !obeyed.is_empty() || searched.elapsed() >= SEARCH {
                self.search();
                searched = Instant::now();
            }
            if !obeyed.is_empty() {
                self.subscribe();
                self.wait_for_sources(each);
            }
            self.ask_sources(each);
            for done in obeyed {
                let _ = done.send(());
            }
            self.look(each);
            self.drain();
        }
    }

    fn wait(&self, wake: &OwnedFd) {
        let mut slots = self.seats.iter().map(|seat| seat.slot);
        let waits = |slot| self.board.word(slot as usize).since(Kind::Runqueue).0 != 0;
        let pause = match &self.hazards {
            _ if !self.collectors.is_empty() => LOOK,
            // A replica without requests is to collect at once.
            _ if self.seats.iter().any(|seat| seat.drain.is_held()) => LOOK,
            _ if self.seats.is_empty() => REST,
            None => POLL,
            Some(_) if slots.any(waits) => LOOK,
            Some(_) => GLANCE,
        };
        let pause = Timespec {
            tv_sec: 0,
            tv_nsec: pause.as_nanos() as _,
        };
        let mut polled = vec![PollFd::new(wake, PollFlags::IN)];
        let ring = self.hazards.as_ref().map(Hazards::epoll_fd);
        if let Some(ring) = &ring {
            polled.push(PollFd::new(ring, PollFlags::IN));
        }
        let sockets = self.sources.iter().filter_map(Source::socket);
        polled.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        // Interrupted by a signal, it looks earlier: nothing is lost.
        let _ = poll(&mut polled, Some(&pause));
        if polled[0].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(wake, &mut [0; 8]); // it is level-triggered
        }
    }

    fn take(&mut self, each: &mut dyn FnMut(&Board, Change)) {
        let board = &self.board;
        if let Some(hazards) = &mut self.hazards {
            hazards.drain(|change| {
                board.changed(change);
                each(board, change);
            });
        }
    }

    /// Watches these from now on. A slot that is given to another replica begins without hazards.
    fn obey(&mut self, targets: Vec<(u32, Target)>) {
        let mut before = std::mem::take(&mut self.seats);
        for (slot, target) in targets {
            let known = before
                .iter()
                .position(|seat| seat.slot == slot && seat.target == target);
            self.seats.push(match known {
                Some(at) => before.swap_remove(at),
                None => Seat::new(slot, target),
            });
        }
        for gone in before {
            if let Some(hazards) = &self.hazards {
                for pid in &gone.pids {
                    hazards.unwatch(gone.slot, *pid);
                }
            }
            self.board.forget(gone.slot as usize); // and its word is its own again
            for kind in Kind::ALL {
                self.board.word(gone.slot as usize).end(kind);
            }
        }
    }
}
