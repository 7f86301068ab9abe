//! The observer (Shim, ISCA 2015): a thread on a CPU of its own reads signals in a loop, every few
//! cycles to microseconds, between two readings of the clock, and tells rates only where both
//! agree on how much time passed (double-time error correction).
//!
//! A [`Name`] says which signal is meant; [`resolve`] finds where it is in memory, as a
//! [`Signal`]; [`placement`] chooses the observer's CPU; [`observe`] runs the loop ([`sampler`]) in
//! random phases with and without reading, so that what the observing itself costs the application
//! is measured too ([`effect`]); the [`Report`] has what was seen, and what was dropped.

// A test gives a symbol its own name, which counts as unsafe.
#![cfg_attr(not(test), forbid(unsafe_code))]

mod analysis;
mod budget;
mod dte;
mod effect;
mod histogram;
mod joint;
mod mapped;
mod name;
mod options;
mod pace;
pub mod placement;
mod plan;
mod prefetch;
mod process;
mod raw;
pub mod report;
pub mod resolve;
mod run;
pub mod sampler;
pub mod self_test;
mod series;
mod signal;
mod tags;
mod topology;

pub use dte::Tolerance;
pub use effect::Effect;
pub use histogram::Histogram;
pub use name::{Name, NameError};
pub use options::{Budget, End, Options, Progress, RunError};
pub use pace::Period;
pub use placement::{Placement, PlacementError, Topology, Where, allowed_here};
pub use process::Owner;
pub use report::Report;
pub use resolve::ResolveError;
pub use run::observe;
pub use signal::{Role, Signal};

/// How many counters one loop reads at most.
pub const MOST_COUNTERS: usize = 4;
/// How many tags one loop reads at most.
pub const MOST_TAGS: usize = 2;
