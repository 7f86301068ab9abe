//! A worker: one pinned kernel thread that runs fibres in turn.

use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use corosensei::{Coroutine, CoroutineResult};

use crate::inbox::Inbox;

/// The index of a worker among all workers of the runtime.
pub type WorkerId = usize;

/// What a fibre asks of its worker when it suspends itself.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Run me again after the others.
    Again,
    /// Hand me to this worker.
    Move(WorkerId),
}

/// A suspended fibre. Each resumption gets the id of the worker that resumes it.
#[repr(align(64))] // One line, so that a move takes one transfer for it and not two.
pub struct Fibre {
    pub(crate) coroutine: Coroutine<WorkerId, Order, ()>,
    /// The next one in an inbox.
    pub(crate) next: *mut Fibre,
}

// SAFETY: on another thread than the home thread only a `Send` closure of `Here::delegate` runs.
// The frames below it, which may hold values that are not `Send`, run at home only. `spawn` takes
// a `Send` closure, so the start may be on another thread than the creation.
unsafe impl Send for Fibre {}

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
