//! What `/proc` says of a process: whose it is and since when, what it has mapped, and its files.
//!
//! [`Allowance`] bounds what that costs.
//!
//! A watched process decides what is in its files and where its paths lead. So [`rooted`] opens
//! regular files only, and never waits.
#![forbid(unsafe_code)]

pub mod maps;
pub mod owner;
pub mod rooted;

mod allowance;
mod growth;
mod proc;

pub use allowance::Allowance;
pub use growth::MappedSizes;
