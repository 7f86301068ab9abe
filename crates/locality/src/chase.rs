//! A pointer-chasing benchmark of two modes: the thread stays and fetches the data, or the thread
//! moves to where the data is.
//!
//! A *session* is a fibre that walks along a circular path of elements ([`path`]). The loop is cut
//! into *phases*, each with its own lines. In synchronous mode, a session walks its whole loop where
//! it is. In delegated mode, each phase is walked on the cluster that owns it, so each core's
//! caches hold the lines of its own phases only.
//!
//! [`experiment`] alternates the modes in short segments within one run, and [`interval`] gives the
//! ratio with its interval. [`pair`], [`levels`] and [`cost`] calibrate the machine.

mod alone;
pub mod caches;
mod compute;
pub mod cost;
pub mod experiment;
pub mod interval;
pub mod levels;
pub mod pair;
pub mod path;
pub mod plan;
mod probe;
pub mod replay;
pub mod report;
mod session;
pub mod size;
pub mod waiting;
