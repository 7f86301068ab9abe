//! Weeks of metering as a service.
//!
//! [`Agent`] stands on a [`Recorder`](tailscope_record::Recorder) that never ends: it finds the
//! processes that its [`Config`] chooses as they start, cuts the recording into ledgers without a
//! gap, keeps them under a quota, answers scrapes and exports kept spans.

#![forbid(unsafe_code)]

mod agent;
mod archive;
mod by_process;
mod choice;
mod config;
mod figures;
#[cfg(fuzzing)]
pub mod fuzzing;
mod identity;
mod ledger_worker;
mod otlp;
mod rotation;
mod scrape;
mod scrape_requests;
mod systemd;

pub use agent::{Agent, AgentError, Orders, Predict, Predicted};
pub use archive::ArchiveError;
pub use config::{Config, Problem};
pub use otlp::trust::TrustError;
pub use systemd::notify;
