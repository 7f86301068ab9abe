//! When does moving the thread to the data pay? [`chase`] measures it with a benchmark.
//!
//! The method is that of Accesstest (Curto, 2023). The prediction for a running program, which that
//! thesis calls Accessprof, is not built.

#![forbid(unsafe_code)]

pub mod chase;

pub use tailscope_fibre::{Mode, Pages};
