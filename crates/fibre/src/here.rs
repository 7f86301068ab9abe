//! What a running fibre can do.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use corosensei::Yielder;

use crate::fibre::{Order, WorkerId};
use crate::worker::Shared;

/// How [`Here::run`] runs a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Call it.
    Synchronous,
    /// Let the other fibres of this thread run first, then call it.
    Yield,
    /// Call it on a thread of the given cluster.
    Delegate,
}

/// The fibre that runs, and where it runs. Each fibre and each delegated closure gets its own.
pub struct Here<'f> {
    yielder: &'f Yielder<WorkerId, Order>,
    shared: &'f Shared,
    worker: Cell<WorkerId>,
    /// Spreads the fibres over the workers of a cluster.
    number: usize,
}

impl<'f> Here<'f> {
    pub(crate) fn new(
        yielder: &'f Yielder<WorkerId, Order>,
        shared: &'f Shared,
        worker: WorkerId,
        number: usize,
    ) -> Self {
        Self {
            yielder,
            shared,
            worker: Cell::new(worker),
            number,
        }
    }

    /// The worker that runs this code, counted over all clusters.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker.get()
    }

    /// The cluster whose worker runs this code.
    #[must_use]
    pub fn cluster(&self) -> usize {
        let mine = self.worker.get();
        let clusters = &self.shared.clusters;
        let found = clusters.iter().position(|workers| workers.contains(&mine));
        found.expect("each worker belongs to a cluster")
    }

    /// Lets the other fibres of this thread run.
    pub fn yield_now(&self) {
        self.suspend(Order::Again);
    }

    /// Runs `work` on a thread of `cluster`, and comes back to this thread with its result.
    ///
    /// If this thread already belongs to `cluster`, it is a plain call. A panic of `work` continues
    /// here, after the return.
    ///
    /// # Panics
    ///
    /// If there is no such cluster.
    pub fn delegate<R: Send>(&self, cluster: usize, work: impl FnOnce(&Here<'_>) -> R + Send) -> R {
        let workers = &self.shared.clusters[cluster];
        let home = self.worker.get();
        // The panic count is the thread's: an unwinding fibre must not leave it.
        if workers.contains(&home) || thread::panicking() {
            return call(work, self);
        }
        self.suspend(Order::Move(workers[self.number % workers.len()]));
        let away = Here::new(self.yielder, self.shared, self.worker.get(), self.number);
        let outcome = catch_unwind(AssertUnwindSafe(|| call(work, &away)));
        self.suspend(Order::Move(home));
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs `work` as `mode` says; the cluster matters only for [`Mode::Delegate`].
    ///
    /// # Panics
    ///
    /// If there is no such cluster.
    pub fn run<R: Send>(
        &self,
        mode: Mode,
        cluster: usize,
        work: impl FnOnce(&Here<'_>) -> R + Send,
    ) -> R {
        match mode {
            Mode::Synchronous => work(self),
            Mode::Yield => {
                self.yield_now();
                work(self)
            }
            Mode::Delegate => self.delegate(cluster, work),
        }
    }

    /// Not inlined: after it, another kernel thread may run this code.
    #[inline(never)]
    fn suspend(&self, order: Order) {
        if !thread::panicking() {
            self.worker.set(self.yielder.suspend(order));
        }
    }
}

/// Calls `work` as a function of its own. Compilers keep the address of a thread-local variable for
/// a whole function, so the caller, which is part of a function at home, must not contain it.
#[inline(never)]
fn call<R>(work: impl FnOnce(&Here<'_>) -> R, here: &Here<'_>) -> R {
    work(here)
}
