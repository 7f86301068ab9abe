//! What a flight recorder has to tell.

use std::path::PathBuf;

use crate::about::Reason;

/// What is worth telling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A window was written.
    Written {
        /// Its file.
        path: PathBuf,
        /// Why.
        reason: Reason,
        /// How much of the past it holds, in ns.
        held_ns: u64,
        /// Events in it.
        events: u64,
        /// Events that are missing in it.
        lost: u64,
        /// How long the writing took, in ns.
        took_ns: u64,
    },
    /// For how long the memory holds events at the present rate: after the first second, and where it
    /// became too little.
    Holds {
        /// So long, in ns, in the ring that is full first.
        held_ns: u64,
        /// So long was asked for, in ns.
        keep_ns: u64,
        /// Events of all CPUs.
        events_per_second: u64,
        /// So much memory would hold what was asked for.
        needed_bytes: u64,
    },
    /// Something that limits what the windows will tell.
    Note(String),
    /// A window could not be written.
    Failed {
        /// Why.
        why: String,
    },
}

/// Figures since the begin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Events that were written to the rings.
    pub events: u64,
    /// Requests that were followed to their end.
    pub requests: u64,
    /// Those that were slow.
    pub slow: u64,
    /// Slow ones that no window was written for, or holds.
    pub passed_over: u64,
    /// Events that the kernel skipped.
    pub skipped: u64,
    /// Spans of the SDK for which their process found no room, or that made no sense.
    pub sdk_lost: u64,
    /// Events that the ring had lost before we looked: requests may not have been seen.
    pub unseen: u64,
}
