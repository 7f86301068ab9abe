//! When does moving the thread to the data pay? [`chase`] measures it with a benchmark.
//!
//! [`sampler`] samples the memory accesses of a running program, and [`profile`] says which lines its
//! threads and phases share. The methods are those of Accesstest and Accessprof (Curto, 2023), without
//! hardware that samples addresses. [`chase::replay`] replays what was sampled, which predicts what
//! a move would gain in that program.

#![forbid(unsafe_code)]

pub mod chase;
pub mod profile;
pub mod program;
pub mod report;
pub mod sampler;
pub mod walk;

pub use tailscope_fibre::{Mode, Pages};
