//! Counts of what was written and what was lost.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was sealed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows in sealed files.
    pub rows: u64,
    /// Bytes of sealed files.
    pub bytes: u64,
    /// Sealed files.
    pub files: u64,
}

/// What ledgers that follow each other wrote and lost, together: sums that only grow, whichever of
/// them is being sealed meanwhile.
#[derive(Debug, Default)]
pub struct Written {
    bytes: AtomicU64,
    lost_rows: AtomicU64,
}

impl Written {
    /// Bytes of sealed files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Rows that could not be written.
    #[must_use]
    pub fn lost_rows(&self) -> u64 {
        self.lost_rows.load(Ordering::Relaxed)
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn add_lost_rows(&self, rows: u64) {
        self.lost_rows.fetch_add(rows, Ordering::Relaxed);
    }
}
