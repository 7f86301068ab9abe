//! How long the recorder sleeps between two looks.
//!
//! Rows that wait are cheap; what hurts the programs beside which it records is a long turn on a CPU
//! that they want: at 200,000 rows a second, looks 50 ms apart take 3 ms each, and a server whose
//! clients share that CPU runs out of requests meanwhile. So the more rows come, the more often
//! it looks, each time for a moment.

use std::time::Duration;

/// Without many rows: how late news of a span may be.
const LONGEST: Duration = Duration::from_millis(50);
/// More often it would wake up more than it works.
const SHORTEST: Duration = Duration::from_millis(4);
/// So many rows a look should find: a fraction of a millisecond's work.
const ROWS: f64 = 500.0;

/// The pause before the next look.
#[derive(Debug)]
pub(crate) struct Pace(Duration);

impl Default for Pace {
    fn default() -> Self {
        Self(LONGEST)
    }
}

impl Pace {
    /// Goes by what the last look found, `rows` in `elapsed`.
    pub(crate) fn follow(&mut self, rows: u64, elapsed: Duration) {
        let a_row = elapsed.as_secs_f64() / rows.max(1) as f64;
        let wanted = Duration::try_from_secs_f64(a_row * ROWS).unwrap_or(LONGEST);
        self.0 = wanted.clamp(SHORTEST, LONGEST);
    }

    pub(crate) fn pause(&self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(rows: u64, ms: u64) -> Duration {
        let mut pace = Pace::default();
        pace.follow(rows, Duration::from_millis(ms));
        pace.pause()
    }

    #[test]
    fn few_rows_leave_it_asleep_for_as_long_as_news_may_take() {
        assert_eq!(after(0, 50), LONGEST);
        assert_eq!(after(500, 50), LONGEST);
    }

    #[test]
    fn many_rows_make_looks_short_and_frequent_down_to_a_limit() {
        assert_eq!(after(1000, 20), Duration::from_millis(10));
        assert_eq!(after(10_000, 50), SHORTEST);
        assert_eq!(after(u64::MAX, 0), SHORTEST);
    }
}
