//! Which requests are slow: longer than a time, or than a percentile of the latest.

use hdrhistogram::Histogram;

/// When a request counts as slow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Slow {
    /// It took at least so many ns.
    Longer(u64),
    /// It took longer than this share of the latest requests; above 0 and below 1.
    Percentile(f64),
}

/// Of so few requests nobody knows a percentile.
const FEWEST: u64 = 1000;
/// A slice of time whose requests are counted together, in ns; the latest two count.
const SLICE_NS: u64 = 10_000_000_000;
/// How often the percentile is worked out, in ns: it takes a look at all counts.
const AGAIN_NS: u64 = 10_000_000;
/// An hour, in ns; what is longer counts as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

fn counts() -> Histogram<u32> {
    Histogram::new_with_max(LONGEST_NS, 2).expect("an hour to two digits is allowed")
}

/// Decides as requests come.
#[derive(Debug)]
pub struct Judge {
    slow: Option<Slow>,
    latest: Histogram<u32>,
    before: Histogram<u32>,
    slice: u64,
    /// The percentile as of not long ago, and when to work it out again.
    known: Option<u64>,
    again_at: u64,
}

impl Judge {
    /// Nothing is slow without a rule.
    #[must_use]
    pub fn new(slow: Option<Slow>) -> Self {
        Self {
            slow,
            latest: counts(),
            before: counts(),
            slice: 0,
            known: None,
            again_at: 0,
        }
    }

    /// Above which latency a request is slow now, in ns. `None`: nothing is, or too little is known.
    #[must_use]
    pub fn threshold(&self) -> Option<u64> {
        match self.slow? {
            Slow::Longer(ns) => Some(ns),
            Slow::Percentile(_) => self.known,
        }
    }

    fn percentile(&self, share: f64) -> Option<u64> {
        if self.latest.len() + self.before.len() < FEWEST {
            return None;
        }
        let mut both = self.latest.clone();
        // Of the same bounds, so there is room for all.
        let _ = both.add(&self.before);
        Some(both.value_at_quantile(share) + 1)
    }

    /// Takes a request that ended at `at`. If it is slow: from which latency on one is, in ns.
    pub fn take(&mut self, at: u64, latency: u64) -> Option<u64> {
        let slow = self.slow?;
        if let Slow::Percentile(share) = slow
            && at >= self.again_at
        {
            self.known = self.percentile(share);
            self.again_at = at + AGAIN_NS;
        }
        let exceeded = self.threshold().filter(|threshold| latency >= *threshold);
        if matches!(slow, Slow::Percentile(_)) {
            if at / SLICE_NS != self.slice {
                self.slice = at / SLICE_NS;
                self.before = std::mem::replace(&mut self.latest, counts());
            }
            self.latest.saturating_record(latency);
        }
        exceeded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_a_thousand_is_beyond_the_p99_9() {
        let mut judge = Judge::new(Some(Slow::Percentile(0.999)));
        let mut slow = 0;
        for n in 0..100_000u64 {
            let late = if n % 500 == 0 { 10 + n / 500 % 100 } else { 0 };
            slow += u32::from(
                judge
                    .take(n * 20_000, (1 + late) * 1_000_000 + n % 999)
                    .is_some(),
            );
        }
        assert!((50..200).contains(&slow), "{slow}");
    }

    #[test]
    fn of_few_requests_none_is_slow_by_percentile() {
        let mut judge = Judge::new(Some(Slow::Percentile(0.99)));
        assert!((0..500).all(|n| judge.take(n, n).is_none()));
    }

    #[test]
    fn a_fixed_time_needs_no_history() {
        let mut judge = Judge::new(Some(Slow::Longer(2_000)));
        assert!(judge.take(1, 2_000) == Some(2_000) && judge.take(2, 1_999).is_none());
    }
}
