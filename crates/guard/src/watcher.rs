//! The thread that fills the hazard words: it loads the kernel's programs where it may, finds the
//! replicas' processes and JVMs, and wakes whoever waits for a change.
//!
//! Without the kernel's programs it polls `/proc` for stopped and ended processes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tailscope_kernel::hazard::{Hazards, SLOTS};
use tailscope_kernel::jvm_probes::Listening;
use tailscope_kernel::{Also, drop_capabilities};
use tailscope_process::maps::{CodeFile, code_files};
use tailscope_signals::clock::Monotonic;
use tailscope_signals::hazard::{Active, Change, Kind, Words};

use crate::board::{Board, Coverage};
use crate::hsperf::Collectors;
use crate::target::Target;

/// Between two looks at waits for a CPU, which no event announces: where a thread waits, and else.
/// A request that is picked a replica for reads the word itself.
const LOOK: Duration = Duration::from_millis(1);
const GLANCE: Duration = Duration::from_millis(5);
/// Between two looks at `/proc` where it is polled.
const POLL: Duration = Duration::from_millis(5);
/// Between two searches for processes that come and go.
const SEARCH: Duration = Duration::from_millis(250);

/// So many searches are made at once, and from then on one in so many.
const EAGER: u32 = 40;
const THEN_EVERY: u32 = 20;

/// What is worth telling, in words.
pub type Say = Box<dyn Fn(&str) + Send>;

/// The running thread. Ends when dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<AtomicBool>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
    refused: Option<String>,
}

impl Watcher {
    /// Starts to watch. `each` is called in the thread for each change.
    ///
    /// # Errors
    /// If there is no memory, thread or descriptor.
    pub fn start(
        targets: Vec<Target>,
        say: Say,
        mut each: impl FnMut(&Board, Change) + Send + 'static,
    ) -> std::io::Result<(Self, Arc<Board>)> {
        let stop = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (ends, woken) = (Arc::clone(&stop), Arc::clone(&wake));
        let (sender, started) = channel();
        // What belongs to the programs stays in the thread that loads them.
        let thread = std::thread::Builder::new()
            .name("hazards".into())
            .spawn(move || {
                let begun = Work::begin(targets, say);
                let (work, told) = match begun {
                    Ok((work, refused)) => {
                        let board = Arc::clone(&work.board);
                        (Some(work), Ok((board, refused)))
                    }
                    Err(e) => (None, Err(e)),
                };
                let _ = sender.send(told);
                if let Some(work) = work {
                    work.run(&ends, &woken, &mut each);
                }
            })?;
        let gone = |_| std::io::Error::other("the thread of the hazards has ended");
        let (board, refused) = started.recv().map_err(gone)??;
        let watcher = Self {
            stop,
            wake,
            thread: Some(thread),
            refused,
        };
        Ok((watcher, board))
    }

    /// Why the kernel's programs are not used; `None`: they are.
    #[must_use]
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Work {
    targets: Vec<Target>,
    /// By replica: its processes.
    pids: Vec<Vec<u32>>,
    hazards: Option<Hazards>,
    board: Arc<Board>,
    /// What held when it was last looked.
    before: Vec<Active>,
    /// Libraries of JVMs that were looked at, by device and inode, and whether they have probes.
    libraries: HashSet<(u64, u64)>,
    listens: HashSet<(u64, u64)>,
    /// By process: how often it was looked at, and whether it is a JVM with probes.
    looks: HashMap<u32, (u32, bool)>,
    /// By process: HotSpot's counters, where they are needed.
    collectors: HashMap<u32, Collectors>,
    /// By replica: searches since one of its processes was found.
    tries: Vec<u32>,
    say: Say,
}

impl Work {
    /// Loads the programs, if that is possible, and finds the processes. The second: why it is not.
    fn begin(targets: Vec<Target>, say: Say) -> std::io::Result<(Self, Option<String>)> {
        let (hazards, refused) = match Hazards::load() {
            Ok(hazards) => (Some(hazards), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let words = match &hazards {
            Some(hazards) => hazards.map_words()?,
            None => Words::in_memory(SLOTS)?,
        };
        let mut work = Self {
            before: vec![Active::default(); targets.len()],
            tries: vec![0; targets.len()],
            pids: vec![Vec::new(); targets.len()],
            board: Arc::new(Board::new(words, targets.len())),
            targets,
            hazards,
            libraries: HashSet::new(),
            listens: HashSet::new(),
            looks: HashMap::new(),
            collectors: HashMap::new(),
            say,
        };
        if work.hazards.is_some() {
            drop_capabilities([(Also::AttachProbes, true)]).map_err(std::io::Error::other)?;
        }
        // Before anybody is served, so that the first request finds the words right.
        work.search();
        Ok((work, refused))
    }

    fn run(mut self, stop: &AtomicBool, wake: &OwnedFd, each: &mut dyn FnMut(&Board, Change)) {
        let mut searched = Instant::now();
        while !stop.load(Relaxed) {
            self.wait(wake);
            self.take(each);
            if searched.elapsed() >= SEARCH {
                self.search();
                searched = Instant::now();
            }
            self.look(each);
        }
    }

    fn wait(&self, wake: &OwnedFd) {
        let mut replicas = 0..self.targets.len() as u32;
        let waits = |replica| self.board.words().word(replica).since(Kind::Runqueue).0 != 0;
        let pause = match &self.hazards {
            _ if !self.collectors.is_empty() => LOOK,
            None => POLL,
            Some(_) if replicas.any(waits) => LOOK,
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
        // Interrupted by a signal, it looks earlier: nothing is lost.
        let _ = poll(&mut polled, Some(&pause));
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

    /// Looks for what no event announces: a wait for a CPU that has become too long, and without
    /// the kernel's programs everything.
    fn look(&mut self, each: &mut dyn FnMut(&Board, Change)) {
        let now = Monotonic::now();
        if self.hazards.is_none() {
            self.poll_processes(now, each);
        }
        self.poll_collectors(now, each);
        for (replica, before) in self.before.iter_mut().enumerate() {
            let active = self.board.active(replica, now);
            if active != *before {
                *before = active;
                self.board.wake(replica);
            }
        }
    }

    fn poll_processes(&mut self, now: Monotonic, each: &mut dyn FnMut(&Board, Change)) {
        for (replica, pids) in self.pids.iter().enumerate() {
            let Some(first) = pids.first().copied() else {
                continue;
            };
            let states: Vec<Option<u8>> = pids.iter().map(|pid| state_of(*pid)).collect();
            let is_stopped = states
                .iter()
                .any(|state| matches!(state, Some(b'T' | b't')));
            let is_gone = states
                .iter()
                .all(|state| matches!(state, None | Some(b'Z' | b'X')));
            for (kind, holds) in [(Kind::Stopped, is_stopped), (Kind::Gone, is_gone)] {
                self.polled(replica, first, kind, holds, now, each);
            }
        }
    }

    fn poll_collectors(&self, now: Monotonic, each: &mut dyn FnMut(&Board, Change)) {
        for (replica, pids) in self.pids.iter().enumerate() {
            let mut all = pids
                .iter()
                .filter_map(|pid| Some((*pid, self.collectors.get(pid)?)))
                .peekable();
            let Some((first, _)) = all.peek().copied() else {
                continue;
            };
            let holds = all.any(|(_, collectors)| collectors.are_collecting());
            self.polled(replica, first, Kind::Collection, holds, now, each);
        }
    }

    /// Takes over what was polled, and reports it if it has changed.
    fn polled(
        &self,
        replica: usize,
        pid: u32,
        kind: Kind,
        holds: bool,
        now: Monotonic,
        each: &mut dyn FnMut(&Board, Change),
    ) {
        let word = self.board.words().word(replica as u32);
        let since = word.since(kind);
        let changes = if holds {
            word.begin(kind, now)
        } else {
            word.end(kind)
        };
        if changes {
            let change = Change {
                at: now,
                since: if holds { now } else { since },
                slot: replica as u32,
                pid,
                kind,
                ends: !holds,
            };
            self.board.changed(change);
            each(&self.board, change);
        }
    }

    /// Finds the processes of each replica, watches new ones, and looks whether stopped ones are
    /// still so.
    fn search(&mut self) {
        for replica in 0..self.targets.len() {
            let before = std::mem::take(&mut self.pids[replica]);
            let lives = |pid: &&u32| !matches!(state_of(**pid), None | Some(b'Z' | b'X'));
            let mut pids: Vec<u32> = before.iter().filter(lives).copied().collect();
            let tries = &mut self.tries[replica];
            *tries = if pids.is_empty() { *tries + 1 } else { 0 };
            if *tries <= EAGER || tries.is_multiple_of(THEN_EVERY) {
                pids = self.targets[replica].processes(&pids);
            }
            let coverage = self.watch(replica as u32, &before, &pids);
            let coverage = self.with_counters(&pids, coverage);
            self.verify_stop(replica, &pids);
            self.board.set(replica, pids.clone(), coverage);
            self.pids[replica] = pids;
        }
        let all: HashSet<u32> = self.pids.iter().flatten().copied().collect();
        self.looks.retain(|pid, _| all.contains(pid));
        self.collectors.retain(|pid, _| all.contains(pid));
    }

    /// Finds HotSpot's counters, where no probe says when a JVM collects.
    fn with_counters(&mut self, pids: &[u32], coverage: Coverage) -> Coverage {
        if matches!(coverage, Coverage::None | Coverage::Jvm) {
            return coverage;
        }
        for pid in pids {
            let (looks, _) = *self.looks.entry(*pid).or_default();
            if self.hazards.is_none() {
                self.looks.insert(*pid, (looks + 1, false));
            }
            let is_due = looks <= EAGER || looks.is_multiple_of(THEN_EVERY);
            if is_due
                && !self.collectors.contains_key(pid)
                && let Some(collectors) = Collectors::of(*pid)
            {
                self.collectors.insert(*pid, collectors);
            }
        }
        match coverage {
            _ if !pids.iter().any(|pid| self.collectors.contains_key(pid)) => coverage,
            Coverage::Kernel => Coverage::KernelHsperf,
            _ => Coverage::PolledHsperf,
        }
    }

    fn watch(&mut self, slot: u32, before: &[u32], pids: &[u32]) -> Coverage {
        let Some(hazards) = &self.hazards else {
            if pids.iter().any(|pid| !before.contains(pid)) {
                // A new process begins without hazards.
                let word = self.board.words().word(slot);
                word.end(Kind::Gone);
                if word.processes() == 0 {
                    word.add_process();
                }
            }
            return if pids.is_empty() {
                Coverage::None
            } else {
                Coverage::Polled
            };
        };
        for gone in before.iter().filter(|pid| !pids.contains(pid)) {
            hazards.unwatch(slot, *gone);
        }
        for pid in pids {
            hazards.watch(slot, *pid);
        }
        // Each is looked at, whatever the first of them is.
        let mut is_java = false;
        for pid in pids {
            is_java |= self.is_java(*pid);
        }
        match (pids.is_empty(), is_java) {
            (true, _) => Coverage::None,
            (false, true) => Coverage::Jvm,
            (false, false) => Coverage::Kernel,
        }
    }

    /// Whether a process is a JVM with probes, to which we listen. To list what it has mapped takes a
    /// ms, and it may map the library some time after its begin: so at first it is looked at each
    /// time, and then now and then.
    fn is_java(&mut self, pid: u32) -> bool {
        let (looks, known) = self.looks.get(&pid).copied().unwrap_or_default();
        let looks = looks + 1;
        let is_java = if looks <= EAGER && !known || looks.is_multiple_of(THEN_EVERY) {
            self.listen(pid)
        } else {
            known
        };
        self.looks.insert(pid, (looks, is_java));
        is_java
    }

    /// Listens to the JVM of a process. True: it has one, with probes.
    fn listen(&mut self, pid: u32) -> bool {
        let Some(hazards) = &mut self.hazards else {
            return false;
        };
        let Some(library) = library_of(pid) else {
            return false;
        };
        let Ok(about) = library.metadata() else {
            return false;
        };
        let key = (about.dev(), about.ino());
        if !self.libraries.insert(key) {
            return self.listens.contains(&key);
        }
        let Ok(file) = library.open() else {
            return false;
        };
        // Through the descriptor: the name may lead elsewhere by now.
        let held = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        match hazards.listen(&held) {
            Listening::To(_) => {
                self.listens.insert(key);
            }
            Listening::NoProbes => (self.say)(&format!(
                "the JVM of process {pid} has no probes, so its collections are not seen; use a \
                 JVM built with --enable-dtrace, such as Debian's"
            )),
            Listening::Refused(why) => (self.say)(&format!(
                "can't attach to the probes in the JVM of process {pid}: {why}"
            )),
        }
        self.listens.contains(&key)
    }

    /// A stop has no expiry, so `/proc` says whether it still holds: its end may have been missed.
    fn verify_stop(&self, replica: usize, pids: &[u32]) {
        let word = self.board.words().word(replica as u32);
        let now = Monotonic::now();
        let is_old = now.0.saturating_sub(word.since(Kind::Stopped).0) > 1_000_000_000;
        if word.read(now).has(Kind::Stopped) && is_old && !pids.iter().any(|pid| is_held(*pid)) {
            word.end(Kind::Stopped);
        }
    }
}

/// Whether a process is stopped, traced or frozen.
fn is_held(pid: u32) -> bool {
    matches!(state_of(pid), Some(b'T' | b't')) || is_frozen(pid)
}

fn is_frozen(pid: u32) -> bool {
    let Ok(groups) = fs::read_to_string(format!("/proc/{pid}/cgroup")) else {
        return false;
    };
    let Some(path) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else {
        return false;
    };
    fs::read_to_string(format!("/sys/fs/cgroup/{path}/cgroup.events"))
        .is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
}

/// The state of a process as a letter (proc(5)); `None`: it is gone.
fn state_of(pid: u32) -> Option<u8> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.trim_start().bytes().next()
}

/// The file of a process's `libjvm.so`.
fn library_of(pid: u32) -> Option<CodeFile> {
    let files = code_files(pid).ok()?;
    files.into_iter().find(CodeFile::is_jvm)
}
