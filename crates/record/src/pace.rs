//! How long the recorder sleeps between two looks.
//!
//! Rows that wait are cheap; what hurts the programs beside which it records is a long turn on a CPU
//! that they want: at 200,000 rows a second, looks 50 ms apart take 3 ms each, and a server whose
//! clients share that CPU runs out of requests meanwhile. So the more rows come, the more often
//! it looks, each time for a moment. Where none have come for a while, each look is a CPU woken up
//! for nothing; the kernel's programs ring when half a ring of rows is full.
//!
//! The pause is 50 ms, and less with many rows, down to 4 ms. After two seconds without a row it is
//! 100 ms.

use std::time::Duration;

/// Without many rows: how late a row may be.
const LONGEST: Duration = Duration::from_millis(50);
/// While none come.
const IDLE: Duration = Duration::from_millis(100);
/// None have come for so long: requests that are a second apart are some.
const IDLE_AFTER: Duration = Duration::from_secs(2);
/// More often it would wake up more than it works.
const SHORTEST: Duration = Duration::from_millis(4);
/// So many rows a look should find: a fraction of a millisecond's work.
const ROWS: f64 = 500.0;

/// The pause before the next look.
#[derive(Debug)]
pub(crate) struct Pace {
    pause: Duration,
    /// For how long no row has come.
    quiet: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            pause: LONGEST,
            quiet: Duration::ZERO,
        }
    }
}

impl Pace {
    /// Goes by what the last look found, `rows` in `elapsed`.
    pub(crate) fn follow(&mut self, rows: u64, elapsed: Duration) {
        self.quiet = match rows {
            0 => self.quiet.saturating_add(elapsed),
            _ => Duration::ZERO,
        };
        if self.is_idle() {
            self.pause = IDLE;
            return;
        }
        let a_row = elapsed.as_secs_f64() / rows.max(1) as f64;
        let wanted = Duration::try_from_secs_f64(a_row * ROWS).unwrap_or(LONGEST);
        self.pause = wanted.clamp(SHORTEST, LONGEST);
    }

    /// Whether no rows have come for a while.
    pub(crate) fn is_idle(&self) -> bool {
        self.quiet >= IDLE_AFTER
    }

    pub(crate) fn pause(&self) -> Duration {
        self.pause
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
    fn it_looks_less_often_once_none_have_come_for_a_while_until_the_next_comes() {
        let mut pace = Pace::default();
        let mut looks = 0;
        while pace.pause() == LONGEST {
            pace.follow(0, LONGEST);
            looks += 1;
        }
        assert_eq!((looks, pace.pause()), (40, IDLE));
        pace.follow(1, IDLE);
        assert_eq!(pace.pause(), LONGEST);
    }

    #[test]
    fn many_rows_make_looks_short_and_frequent_down_to_a_limit() {
        assert_eq!(after(1000, 20), Duration::from_millis(10));
        assert_eq!(after(10_000, 50), SHORTEST);
        assert_eq!(after(u64::MAX, 0), SHORTEST);
    }
}
