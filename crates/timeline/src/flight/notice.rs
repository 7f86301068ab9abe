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
    /// Slow ones, or asked for, for which no window was written: too many a minute, or no room.
    pub passed_over: u64,
    /// Events that the kernel skipped.
    pub skipped: u64,
    /// Spans of the SDK for which their process found no room, or that made no sense.
    pub sdk_lost: u64,
    /// Events that the ring had lost before we looked: requests may not have been seen.
    pub unseen: u64,
}
