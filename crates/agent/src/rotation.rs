//! When one ledger ends and the next begins.
//!
//! Ages are on the monotonic clock, so that a wall clock that is set back or forward ends nothing
//! early or late by itself. But a ledger's times go on as they began, so a step ends it: the next
//! one has the clock's own time again. A suspended machine is such a step, for the monotonic clock
//! stood still meanwhile.

use std::fmt;
use std::time::{Duration, Instant};

/// A wall clock that moved by less is being slewed: it waits for the next ledger.
const STEP_NS: u64 = 500_000_000;

/// When to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rotation {
    pub(crate) size: u64,
    pub(crate) age: Duration,
}

/// What is known of the present ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    /// When it began, and what time it is: both monotonic.
    pub(crate) began: Instant,
    pub(crate) now: Instant,
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// How far the wall clock moved since it began.
    pub(crate) step_ns: i64,
}

/// Why to turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Size,
    Age,
    Clock,
    Reload,
}

impl Rotation {
    pub(crate) fn due(&self, present: &Present) -> Option<Reason> {
        if present.step_ns.unsigned_abs() >= STEP_NS {
            Some(Reason::Clock)
        } else if present.bytes >= self.size {
            Some(Reason::Size)
        } else if present.now.saturating_duration_since(present.began) >= self.age {
            Some(Reason::Age)
        } else {
            None
        }
    }
}

impl Reason {
    pub(crate) const ALL: [Self; 4] = [Self::Size, Self::Age, Self::Clock, Self::Reload];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size => "size",
            Self::Age => "age",
            Self::Clock => "clock",
            Self::Reload => "reload",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROTATION: Rotation = Rotation {
        size: 1000,
        age: Duration::from_secs(60),
    };

    fn after(seconds: u64, bytes: u64, step_ns: i64) -> Option<Reason> {
        let began = Instant::now();
        ROTATION.due(&Present {
            began,
            now: began + Duration::from_secs(seconds),
            bytes,
            step_ns,
        })
    }

    #[test]
    fn size_and_age_end_a_ledger() {
        assert_eq!(after(59, 999, 0), None);
        assert_eq!(after(0, 1000, 0), Some(Reason::Size));
        assert_eq!(after(60, 0, 0), Some(Reason::Age));
    }

    #[test]
    fn a_clock_that_is_stepped_ends_it_whichever_way() {
        let hour = 3_600_000_000_000;
        for step in [hour, -hour, i64::MIN, 600_000_000] {
            assert_eq!(after(1, 0, step), Some(Reason::Clock), "{step}");
        }
    }

    #[test]
    fn a_clock_that_is_slewed_ends_nothing() {
        assert_eq!(after(1, 0, 400_000_000), None);
        assert_eq!(after(1, 0, -400_000_000), None);
    }
}
