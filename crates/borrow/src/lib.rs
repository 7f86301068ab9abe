//! Batch commands in the idle time of a latency-critical server, and what they cost the server.
//!
//! The batch command runs in `SCHED_IDLE` and in a cgroup with `cpu.idle`, on the server's CPUs, so
//! the kernel gives it only time in which nobody else wants the CPU. The server itself is never
//! touched: not its policy, not its affinity, not its cgroups.
//!
//! Three processes take part:
//!
//! - the *borrower* is the command that a person starts. It records the server's requests, decides
//!   how much is lent ([`Controller`]), and reports ([`Account`]);
//! - the *keeper* ([`keeper`]) starts the batch command, holds it back in random phases, puts
//!   deviating threads back, and ends everything when the borrower ends, however that happens;
//! - the batch command, with all its descendants.
//!
//! If borrower and keeper are both killed at once, a state file ([`state`]) says what is left.

#![forbid(unsafe_code)]

mod account;
mod available;
mod bootstrap;
mod error;
mod grid;
mod groups;
pub mod guard;
mod hierarchies;
pub mod keeper;
mod lane;
mod lender;
mod members;
mod message;
mod phases;
mod plan;
mod report;
mod server;
pub mod simulate;
mod slo;
pub mod starter;
pub mod state;

pub use account::{Account, Span};
pub use available::{Available, available};
pub use bootstrap::{Estimate, Intervals};
pub use error::BorrowError;
pub use groups::Mechanism;
pub use hierarchies::Hierarchies;
pub use lane::Lane;
pub use lender::Lender;
pub use message::{Ending, Message, Pace};
pub use phases::DEFAULT_HELD_BACK;
pub use plan::Plan;
pub use report::{Report, Side, SloReport, Tail};
pub use slo::{Controller, Slo, SloError, parse_ns};
