//! Why a process can't be watched.

use crate::shared;

/// A process can't be watched.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The table of processes is full.
    #[error(
        "can't watch another process: the limit is {} at a time; watch fewer processes",
        shared::MAX_PROCESSES
    )]
    TooMany,
    /// No further map of meters can be handed out.
    #[error(
        "can't serve the SDK to another process: the limit is {0} at a time; watch fewer processes"
    )]
    TooManySdk(usize),
    /// The kernel refused.
    #[error("can't {what}: {source}")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: libbpf_rs::Error,
    },
}

pub(crate) fn kernel(what: &'static str) -> impl FnOnce(libbpf_rs::Error) -> WatchError {
    move |source| WatchError::Kernel { what, source }
}
