//! What can keep a batch command from running in a server's gaps.

use std::io;

/// Lending can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum BorrowError {
    /// Something was asked that can't be.
    #[error("{0}")]
    Usage(String),
    /// This machine or user can't.
    #[error("{0}")]
    Machine(String),
    /// The system refused something.
    #[error("can't {what}: {source}")]
    System {
        /// What was to be done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Says what was to be done when the system refused it.
pub(crate) fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> BorrowError {
    let what = what.into();
    move |source| BorrowError::System { what, source }
}
