//! User threads (fibres) on clusters of pinned kernel threads.
//!
//! A cluster is a group of kernel threads, each pinned to one CPU. A fibre has a home thread, and
//! all of its own code runs there. [`Here::delegate`] runs one closure on a thread of another
//! cluster, where the closure's data is cached, and comes home with the result, also on a panic.
//! [`Mode`] chooses at run time between a plain call, a yield and a delegation.
//!
//! Why there is no bare `migrate`: a fibre's stack may hold values that must stay on one kernel
//! thread (`Rc`, a lock's guard, addresses of thread-local variables). Only the closure, which is
//! `Send`, runs elsewhere, so safe code can't take such a value along.
//!
//! What a caller has to know:
//!
//! - Scheduling is cooperative. A closure that blocks also blocks every fibre of that thread.
//! - A thread-local variable (also C's `errno`) is that of the thread that runs the closure.
//! - A lock that a fibre holds while it is away or yields can deadlock with fibres of its thread.
//! - While a thread unwinds from a panic, its fibre neither yields nor moves.
//! - Stacks end in a guard page: an overflow ends the process by SIGSEGV.
//! - After fork(), the child has no worker threads. Only exec() is safe there.

mod fibre;
mod here;
mod inbox;
mod memory;
mod runtime;
mod worker;

pub use here::{Here, Mode};
pub use memory::{Memory, Pages};
pub use runtime::{Cluster, JoinHandle, Runtime, StartError};
