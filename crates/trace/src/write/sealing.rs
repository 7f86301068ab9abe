//! When a file is sealed.

use std::time::Duration;

/// When a file is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealing {
    /// When it holds that many rows (files may be larger by less than a row group of 65,536).
    pub max_rows: u64,
    /// When its first row was pushed that long ago: what a crash loses at most. A ledger's first
    /// files are sealed sooner, after 1, 2, 5 and 10 s of rows: a recording that is killed in its
    /// first seconds leaves some, too.
    pub max_age: Duration,
}

/// How old the first rows of a ledger's first files become before they are sealed. The largest is
/// half the usual age: a file costs about as much as 10,000 rows.
const EARLY: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(5),
];

impl Default for Sealing {
    /// A million rows or ten seconds; see [`Sealing::max_age`] for a ledger's first ones.
    fn default() -> Self {
        Sealing {
            max_rows: 1_000_000,
            max_age: Duration::from_secs(10),
        }
    }
}

impl Sealing {
    /// How old the first row of a file may become, after so many files of the same ledger.
    pub(super) fn age_after(self, files: u64) -> Duration {
        let early = EARLY.get(usize::try_from(files).unwrap_or(usize::MAX));
        early.map_or(self.max_age, |early| self.max_age.min(*early))
    }
}
