//! What a server lost.

use crate::region::RegionLoss;

/// What was lost or refused so far, also of processes that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Losses {
    /// Rows that found no room in their region.
    pub full: u64,
    /// Rows or chunks of rows that made no sense.
    pub malformed: u64,
    /// Requests of processes that are not watched.
    pub unwatched: u64,
    /// Requests of watched processes that got no memory.
    pub refused: u64,
}

impl Losses {
    pub(crate) fn add(&mut self, loss: RegionLoss) {
        self.full += loss.full;
        self.malformed += loss.malformed;
    }
}
