//! A worker: one pinned kernel thread that runs fibres in turn.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use corosensei::CoroutineResult;

use crate::fibre::{Fibre, Order, WorkerId};
use crate::inbox::Inbox;

/// What the threads of a runtime share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) workers: Vec<Mailed>,
    /// By cluster, its workers.
    pub(crate) clusters: Vec<Vec<WorkerId>>,
    /// Fibres that have not ended.
    pub(crate) alive: AtomicUsize,
    pub(crate) closing: AtomicBool,
    /// How long an idle worker polls its inbox before it sleeps.
    pub(crate) patience: Duration,
}

/// What others know of a worker.
#[derive(Debug, Default)]
pub struct Mailed {
    pub(crate) inbox: Inbox,
    pub(crate) thread: OnceLock<Thread>,
}

impl Shared {
    /// Hands a fibre to a worker.
    pub fn send(&self, to: WorkerId, fibre: Box<Fibre>) {
        let worker = &self.workers[to];
        let thread = worker.thread.get();
        let thread = thread.expect("workers are registered before the first fibre is spawned");
        worker.inbox.push(fibre, thread);
    }

    /// Whether no fibre is left and none will come.
    fn is_done(&self) -> bool {
        self.closing.load(Ordering::SeqCst) && self.alive.load(Ordering::SeqCst) == 0
    }

    /// Wakes every worker that sleeps.
    pub fn wake_all(&self) {
        for worker in &self.workers {
            if let Some(thread) = worker.thread.get() {
                worker.inbox.wake(thread);
            }
        }
    }
}

/// Runs fibres until the runtime closes and none is left anywhere.
pub fn run(shared: &Shared, me: WorkerId) {
    let inbox = &shared.workers[me].inbox;
    let mut ready = VecDeque::new();
    loop {
        if !inbox.is_empty() {
            inbox.drain(|fibre| ready.push_back(fibre));
        }
        let Some(mut fibre) = ready.pop_front() else {
            if shared.is_done() {
                return;
            }
            wait(shared, inbox);
            continue;
        };
        match fibre.coroutine.resume(me) {
            CoroutineResult::Yield(Order::Again) => ready.push_back(fibre),
            CoroutineResult::Yield(Order::Move(to)) => shared.send(to, fibre),
            CoroutineResult::Return(()) => {
                drop(fibre);
                let left = shared.alive.fetch_sub(1, Ordering::SeqCst) - 1;
                if left == 0 && shared.closing.load(Ordering::SeqCst) {
                    shared.wake_all();
                }
            }
        }
    }
}

/// Polls for a while, then sleeps until something arrives.
fn wait(shared: &Shared, inbox: &Inbox) {
    const POLLS: u32 = 64; // Reading the clock costs about as much as ten polls.
    let start = Instant::now();
    while start.elapsed() < shared.patience {
        for _ in 0..POLLS {
            if !inbox.is_empty() {
                return;
            }
            spin_loop();
        }
        if shared.closing.load(Ordering::Acquire) {
            break;
        }
    }
    if !inbox.fall_asleep() {
        return;
    }
    // Dropping the runtime sets its flag before it looks for sleepers: one of both sees the other.
    while inbox.is_asleep() && !shared.is_done() {
        thread::park();
    }
}
