//! A thread that searches the files of processes for the SDK. Slow, large or very many files delay this
//! thread alone.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use tailscope_process::Allowance;
use tailscope_symbols::sdk::Address;

pub use crate::inspected::Answer;
use crate::inspected::Inspected;

/// The most processes that wait to be searched. Others are refused and asked for again later.
const QUEUE: usize = 1024;
/// The share of a CPU that the thread takes for one user's processes in the long run, and the CPU time
/// at once.
const SHARE: f64 = 0.01;
const AT_ONCE: Duration = Duration::from_millis(500);
/// The most users whose allowances are remembered.
const MOST_USERS: usize = 4096;
/// For how long the recorder waits for answers: a share of all time, and so much at once.
const WAIT_SHARE: f64 = 0.02;
const WAIT_AT_ONCE: Duration = Duration::from_millis(100);

/// The thread. It ends some time after this is dropped: nothing waits for a file that hangs.
#[derive(Debug)]
pub struct Finder {
    asks: SyncSender<AskedFor>,
    answers: Receiver<Answer>,
    /// Processes without an answer yet, and for whom they were asked for again: the answer on its way may
    /// not know what they have mapped since.
    pending: HashMap<u32, Option<AskedFor>>,
    /// Readable when a file with the SDK was found.
    waker: Arc<OwnedFd>,
    waiting: Allowance,
}

impl Finder {
    /// Starts it, for a recorder that listens at this address.
    pub fn start(address: Address) -> io::Result<Self> {
        let (asks, asked) = sync_channel(QUEUE);
        let (answer, answers) = channel();
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        let waker = Arc::new(eventfd(0, flags)?);
        let wakes = Arc::clone(&waker);
        thread::Builder::new()
            .name("sdk-files".into())
            .spawn(move || {
                let mut worker = Worker::new(address);
                while let Some(asked_for) = worker.next(&asked) {
                    let found = worker.search(asked_for);
                    let is_news = !found.files.is_empty();
                    if answer.send(found).is_err() {
                        return;
                    }
                    if is_news {
                        // It fails only where it is readable since long.
                        let _ = rustix::io::write(&*wakes, &1u64.to_ne_bytes());
                    }
                }
            })?;
        Ok(Self {
            asks,
            answers,
            pending: HashMap::new(),
            waker,
            waiting: Allowance::new(WAIT_SHARE, WAIT_AT_ONCE),
        })
    }

    /// Asks for a user's process to be searched. False: too many wait, ask again later.
    pub fn search(&mut self, pid: u32, user: u32) -> bool {
        let asked_for = AskedFor { pid, user };
        if let Some(again) = self.pending.get_mut(&pid) {
            *again = Some(asked_for);
            return true;
        }
        match self.asks.try_send(asked_for) {
            Ok(()) => {
                self.pending.insert(pid, None);
                true
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }

    /// Whether a process has been asked for and not answered yet.
    #[must_use]
    pub fn is_searching(&self, pid: u32) -> bool {
        self.pending.contains_key(&pid)
    }

    /// Whether any process has been asked for and not answered yet.
    #[must_use]
    pub fn is_searching_any(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Readable when a file with the SDK was found since the last call of [`answers`](Self::answers).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// What was found since the last time.
    pub fn answers(&mut self) -> Vec<Answer> {
        let _ = rustix::io::read(&*self.waker, &mut [0u8; 8]);
        let answers: Vec<Answer> = self.answers.try_iter().collect();
        for answer in &answers {
            self.answered(answer.pid);
        }
        answers
    }

    /// The same, and waits for answers that come at once: in the long run 2 % of the time.
    pub fn answers_soon(&mut self) -> Vec<Answer> {
        let begun = Instant::now();
        let patience = self.waiting.left();
        let mut answers = self.answers();
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
        if let Some(AskedFor { pid, user }) = self.pending.remove(&pid).flatten() {
            self.search(pid, user);
        }
    }
}

/// A process to be searched, and whose it is.
#[derive(Debug, Clone, Copy)]
struct AskedFor {
    pid: u32,
    user: u32,
}

/// The thread's side.
#[derive(Debug)]
struct Worker {
    inspected: Inspected,
    /// The CPU time of this thread that each user's processes may take.
    users: HashMap<u32, Allowance>,
    /// Processes whose users have taken too much, and when they are due.
    deferred: VecDeque<(Instant, AskedFor)>,
}

impl Worker {
    fn new(address: Address) -> Self {
        Self {
            inspected: Inspected::new(address),
            users: HashMap::new(),
            deferred: VecDeque::new(),
        }
    }

    /// The next process to search. `None`: the finder was dropped.
    fn next(&mut self, asked: &Receiver<AskedFor>) -> Option<AskedFor> {
        loop {
            let now = Instant::now();
            let due = self.deferred.iter().position(|(at, _)| *at <= now);
            if let Some((_, due)) = due.and_then(|place| self.deferred.remove(place)) {
                return Some(due);
            }
            let first = self.deferred.iter().map(|(at, _)| *at).min();
            let next = match first {
                None => asked.recv().ok()?,
                Some(at) => match asked.recv_timeout(at - now) {
                    Ok(next) => next,
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => return None,
                },
            };
            let debt = self.allowance(next.user).debt();
            if debt.is_zero() {
                return Some(next);
            }
            self.deferred.push_back((now + debt, next));
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

    fn search(&mut self, AskedFor { pid, user }: AskedFor) -> Answer {
        let before = own_time();
        let answer = self.inspected.search(pid, user);
        let took = own_time().saturating_sub(before);
        self.allowance(user).add(took);
        answer
    }
}

/// The CPU time of this thread.
fn own_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_sdk_has_no_files_and_is_searched_again_if_asked_meanwhile() {
        let mut finder = Finder::start(Address::First).expect("a thread");
        let us = std::process::id();
        assert!(finder.search(us, 0) && finder.search(us, 0));
        let mut answers = Vec::new();
        let begun = Instant::now();
        while finder.is_searching(us) && begun.elapsed() < Duration::from_secs(20) {
            answers.extend(finder.answers_soon());
        }
        assert_eq!(answers.len(), 2);
        let is_ours = |answer: &Answer| answer.pid == us && answer.files.is_empty();
        assert!(answers.iter().all(is_ours));
        assert!(finder.pending.is_empty());
    }
}
