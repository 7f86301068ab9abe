//! Why an agent does not start, or go on.

use std::io;

use tailscope_record::RecordError;

use crate::archive::ArchiveError;
use crate::config::Problem;
use crate::otlp::trust::TrustError;

/// An agent can't start or go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its configuration.
    #[error(transparent)]
    Config(#[from] Problem),
    /// Its folder.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// Its recorder.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The probes of `spans`.
    #[error(transparent)]
    Unresolved(#[from] tailscope_record::UnresolvedError),
    /// The first ledger.
    #[error("can't start a ledger: {0}")]
    Begin(String),
    /// `listen` of its metrics.
    #[error("can't serve metrics at {address}: {source}")]
    Listen {
        /// Where.
        address: std::net::SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// The collector's certificate can't be held against anything.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A thread or a descriptor.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::System { what, source }
}
