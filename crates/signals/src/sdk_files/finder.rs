//! A thread that looks for the SDK in processes. A file that is slow to read, or large, or one of
//! very many, holds up this thread and nobody else.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::{CodeFile, FileId, SdkFile, code_files};

/// So many processes may wait to be looked into; the others are looked into later.
const QUEUE: usize = 1024;
/// So many files' findings are remembered.
const MOST_INSPECTED: usize = 16_384;
/// A file that changes is read again this much later at the earliest.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The share of a CPU that it takes for one user's processes in the long run, and the CPU time at once.
const SHARE: f64 = 0.02;
/// Users whose allowances are remembered.
const MOST_USERS: usize = 4096;
const AT_ONCE: Duration = Duration::from_millis(500);
/// Whoever asks waits for an answer so long, in all: a share of the time, and so much at once.
const WAIT_SHARE: f64 = 0.02;
const WAIT_AT_ONCE: Duration = Duration::from_millis(100);

/// What was found in a process.
#[derive(Debug)]
pub struct Answer {
    /// The process.
    pub pid: u32,
    /// The files with the SDK that it has mapped.
    pub files: Vec<SdkFile>,
    /// Files that can't be read, and why. Each is reported once.
    pub unread: Vec<(PathBuf, io::Error)>,
}

/// The thread, which ends some time after this is dropped: nobody waits for a file that hangs.
#[derive(Debug)]
pub struct Finder {
    asks: SyncSender<u32>,
    answers: Receiver<Answer>,
    /// Processes that were asked for and not answered yet, and whether they were asked for again since:
    /// the answer on its way may be of before what they have mapped now.
    pending: HashMap<u32, bool>,
    waiting: Allowance,
}

impl Finder {
    /// Starts it.
    pub fn start() -> io::Result<Self> {
        let (asks, asked) = sync_channel(QUEUE);
        let (answer, answers) = channel();
        thread::Builder::new()
            .name("sdk-files".into())
            .spawn(move || {
                let mut worker = Worker::default();
                while let Some(pid) = worker.next(&asked) {
                    if answer.send(worker.look_in(pid)).is_err() {
                        return;
                    }
                }
            })?;
        Ok(Self {
            asks,
            answers,
            pending: HashMap::new(),
            waiting: Allowance::new(WAIT_SHARE, WAIT_AT_ONCE),
        })
    }

    /// Has a process looked into. False: too many wait, ask again.
    pub fn look_in(&mut self, pid: u32) -> bool {
        if let Some(again) = self.pending.get_mut(&pid) {
            *again = true;
            return true;
        }
        match self.asks.try_send(pid) {
            Ok(()) => {
                self.pending.insert(pid, false);
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Whether a process is still being looked into.
    #[must_use]
    pub fn is_looking_in(&self, pid: u32) -> bool {
        self.pending.contains_key(&pid)
    }

    /// What was found since the last time. Waits for what was asked for, as long as it comes at once:
    /// in the long run 2 % of the time.
    pub fn answers(&mut self) -> Vec<Answer> {
        let begun = Instant::now();
        let patience = self.waiting.left();
        let mut answers: Vec<Answer> = self.answers.try_iter().collect();
        for answer in &answers {
            self.answered(answer.pid);
        }
        while !self.pending.is_empty() {
            let left = patience.saturating_sub(begun.elapsed());
            let Ok(answer) = self.answers.recv_timeout(left) else {
                break;
            };
            self.answered(answer.pid);
            answers.push(answer);
        }
        self.waiting.add(begun.elapsed());
        answers
    }

    fn answered(&mut self, pid: u32) {
        if self.pending.remove(&pid) == Some(true) {
            self.look_in(pid);
        }
    }
}

/// The thread's side.
#[derive(Debug, Default)]
struct Worker {
    inspected: Inspected,
    /// What each user's processes may take of this thread.
    users: HashMap<u32, Allowance>,
    /// Processes whose users have taken too much, and when they may go on.
    deferred: VecDeque<(Instant, u32)>,
}

impl Worker {
    /// The next process to look into; `None`: nobody asks any more.
    fn next(&mut self, asked: &Receiver<u32>) -> Option<u32> {
        loop {
            let now = Instant::now();
            let due = self.deferred.iter().position(|(at, _)| *at <= now);
            if let Some((_, pid)) = due.and_then(|place| self.deferred.remove(place)) {
                return Some(pid);
            }
            let first = self.deferred.iter().map(|(at, _)| *at).min();
            let pid = match first {
                None => asked.recv().ok()?,
                Some(at) => match asked.recv_timeout(at - now) {
                    Ok(pid) => pid,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return None,
                },
            };
            let debt = self.allowance(owner_of(pid)).debt();
            if debt.is_zero() {
                return Some(pid);
            }
            self.deferred.push_back((now + debt, pid));
        }
    }

    fn allowance(&mut self, user: u32) -> &mut Allowance {
        if self.users.len() >= MOST_USERS && !self.users.contains_key(&user) {
            self.users
                .retain(|_, allowance| !allowance.debt().is_zero());
        }
        let new = || Allowance::new(SHARE, AT_ONCE);
        self.users.entry(user).or_insert_with(new)
    }

    fn look_in(&mut self, pid: u32) -> Answer {
        let user = owner_of(pid);
        let before = own_time();
        let answer = self.inspected.look_in(pid);
        let took = own_time().saturating_sub(before);
        self.allowance(user).add(took);
        answer
    }
}

/// The user of a process; the last one of all where it is gone.
fn owner_of(pid: u32) -> u32 {
    crate::owner::of(pid).unwrap_or(u32::MAX)
}

/// The CPU time of this thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Time that may be spent: a share of all that passes, and some at once.
#[derive(Debug)]
struct Allowance {
    share: f64,
    at_once: Duration,
    began: Instant,
    spent: Duration,
}

impl Allowance {
    fn new(share: f64, at_once: Duration) -> Self {
        Self {
            share,
            at_once,
            began: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    fn allowed(&mut self) -> Duration {
        let earned = self.began.elapsed().mul_f64(self.share);
        // What was not spent is not saved up beyond what may be spent at once.
        if self.spent < earned {
            self.began += (earned - self.spent).div_f64(self.share);
        }
        self.began.elapsed().mul_f64(self.share) + self.at_once
    }

    fn add(&mut self, time: Duration) {
        self.spent += time;
    }

    fn left(&mut self) -> Duration {
        self.allowed().saturating_sub(self.spent)
    }

    /// How long to pause until something may be spent again.
    fn debt(&mut self) -> Duration {
        let allowed = self.allowed();
        self.spent.saturating_sub(allowed).div_f64(self.share)
    }
}

/// A file as it was when it was looked into.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    length: u64,
    written: (i64, i64),
}

#[derive(Debug)]
struct Inspection {
    version: Version,
    has_sdk: bool,
    at: Instant,
}

/// Files that were looked into for the SDK.
#[derive(Debug, Default)]
struct Inspected {
    files: HashMap<FileId, Inspection>,
    /// Files that could not be read, and were reported.
    reported: HashSet<FileId>,
}

impl Inspected {
    fn look_in(&mut self, pid: u32) -> Answer {
        let mut answer = Answer {
            pid,
            files: Vec::new(),
            unread: Vec::new(),
        };
        for mapped in code_files(pid).unwrap_or_default() {
            let Ok(file) = mapped.open() else {
                continue; // not a regular file, gone, or not ours to read: it has no SDK that counts
            };
            self.look_at(&mapped, file, &mut answer);
        }
        answer
    }

    fn look_at(&mut self, mapped: &CodeFile, file: File, answer: &mut Answer) {
        let Ok(about) = file.metadata() else { return };
        let id = (about.dev(), about.ino());
        let version = Version {
            length: about.len(),
            written: (about.mtime(), about.mtime_nsec()),
        };
        if let Some(known) = self.files.get(&id) {
            let settled = known.version == version || known.at.elapsed() < READ_AGAIN;
            if settled && !known.has_sdk {
                return;
            }
        }
        let found = SdkFile::read(file, mapped.path.clone());
        if self.files.len() >= MOST_INSPECTED {
            self.files.retain(|_, inspection| inspection.has_sdk);
        }
        if self.files.len() < MOST_INSPECTED {
            let inspection = Inspection {
                version,
                has_sdk: matches!(found, Ok(Some(_))),
                at: Instant::now(),
            };
            self.files.insert(id, inspection);
        }
        match found {
            Ok(found) => answer.files.extend(found),
            Err(e) if self.reported.len() < MOST_INSPECTED && self.reported.insert(id) => {
                answer.unread.push((mapped.path.clone(), e));
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_a_share_of_the_time() {
        let mut allowance = Allowance::new(0.5, Duration::from_secs(60));
        assert!(allowance.left() >= Duration::from_secs(60));
        allowance.add(Duration::from_secs(3600));
        assert_eq!(allowance.left(), Duration::ZERO);
        assert!(allowance.debt() > Duration::from_secs(7000));
        allowance.began -= Duration::from_secs(7200);
        assert!(allowance.left() >= Duration::from_secs(59));
        // An hour of rest is not a saving.
        allowance.began -= Duration::from_secs(7200);
        assert!(allowance.left() <= Duration::from_secs(61));
    }

    #[test]
    fn a_process_without_the_sdk_has_no_files_and_is_looked_into_again_if_asked_meanwhile() {
        let mut finder = Finder::start().expect("a thread");
        let us = std::process::id();
        assert!(finder.look_in(us) && finder.look_in(us));
        let mut answers = Vec::new();
        let begun = Instant::now();
        while finder.is_looking_in(us) && begun.elapsed() < Duration::from_secs(20) {
            answers.extend(finder.answers());
        }
        assert_eq!(answers.len(), 2);
        let is_ours = |answer: &Answer| answer.pid == us && answer.files.is_empty();
        assert!(answers.iter().all(is_ours));
        assert!(finder.pending.is_empty());
    }
}
