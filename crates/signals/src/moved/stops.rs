//! For how long a process stood still.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Every stop of a process, or of one thread of it, for the sake of a page: those in vain too.
#[derive(Debug, Default)]
pub struct Stops {
    count: AtomicU32,
    longest: AtomicU64,
}

impl Stops {
    pub(super) fn add(&self, stood: Duration) {
        self.count.fetch_add(1, Relaxed);
        let stood = u64::try_from(stood.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(stood, Relaxed);
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// The longest of them.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Relaxed))
    }
}
