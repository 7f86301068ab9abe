//! What `tailscope cost` needs of the kernel: programs on hooks of every kind, to be timed; and
//! programs that count how often a hook is hit.
//!
//! All links and programs go with the values that hold them.

mod calls;
mod counts;
mod hooks;
mod numbers;

pub use calls::{Call, First};
pub use counts::{COUNTED_TOGETHER, Counted, Counts};
pub use hooks::{Attached, Hooks, Payload, tracepoint_id};
pub use numbers::syscall_number;
