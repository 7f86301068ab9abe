//! A fibre that is suspended, and what it asks of its worker.

use corosensei::Coroutine;

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
