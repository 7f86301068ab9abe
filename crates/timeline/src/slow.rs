//! Which requests are slow: longer than a time, or than a percentile of the latest.

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
/// How often the percentile is worked out, in ns: it takes a look at all bins.
const AGAIN_NS: u64 = 10_000_000;
/// Bins of an octave: a bin is 0.8 % wide.
const BINS: u64 = 128;

/// Counts of latencies by bins that grow with them.
#[derive(Debug, Clone)]
struct Counts {
    bins: Vec<u32>,
    total: u64,
}

impl Counts {
    fn new() -> Self {
        Self {
            bins: vec![0; 64 * BINS as usize],
            total: 0,
        }
    }
}

/// The bin of a latency, and where it ends. Below 128 ns each has its own.
fn bin(ns: u64) -> usize {
    if ns < BINS {
        return ns as usize;
    }
    let octave = u64::from(ns.ilog2()) - u64::from(BINS.ilog2());
    (octave * BINS + (ns >> octave)) as usize
}

fn upper(bin: usize) -> u64 {
    let bin = bin as u64;
    if bin < 2 * BINS {
        return bin;
    }
    let octave = bin / BINS - 1;
    // The last bin ends where the numbers do.
    ((bin - octave * BINS + 1) << octave).wrapping_sub(1)
}

/// Decides as requests come.
#[derive(Debug)]
pub struct Judge {
    slow: Option<Slow>,
    latest: Counts,
    before: Counts,
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
            latest: Counts::new(),
            before: Counts::new(),
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
        let total = self.latest.total + self.before.total;
        if total < FEWEST {
            return None;
        }
        let mut left = (total as f64 * share).ceil() as u64;
        let counts = self.latest.bins.iter().zip(&self.before.bins);
        counts
            .enumerate()
            .find(|(_, (latest, before))| {
                let here = u64::from(**latest) + u64::from(**before);
                let found = left <= here;
                left = left.saturating_sub(here);
                found
            })
            .map(|(bin, _)| upper(bin) + 1)
    }

    /// Takes a request that ended at `at`, and says whether it is slow.
    pub fn take(&mut self, at: u64, latency: u64) -> bool {
        let Some(slow) = self.slow else { return false };
        if let Slow::Percentile(share) = slow
            && at >= self.again_at
        {
            self.known = self.percentile(share);
            self.again_at = at + AGAIN_NS;
        }
        let is_slow = self
            .threshold()
            .is_some_and(|threshold| latency >= threshold);
        if matches!(slow, Slow::Percentile(_)) {
            if at / SLICE_NS != self.slice {
                self.slice = at / SLICE_NS;
                self.before = std::mem::replace(&mut self.latest, Counts::new());
            }
            self.latest.bins[bin(latency)] += 1;
            self.latest.total += 1;
        }
        is_slow
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_latency_lies_in_its_bin_and_a_bin_is_narrow(ns in 0u64..u64::MAX) {
            let bin = bin(ns);
            prop_assert!(ns <= upper(bin));
            prop_assert!(bin == 0 || ns > upper(bin - 1));
            prop_assert!(upper(bin) as f64 <= ns as f64 * 1.01);
        }
    }

    #[test]
    fn one_in_a_thousand_is_beyond_the_p99_9() {
        let mut judge = Judge::new(Some(Slow::Percentile(0.999)));
        let mut slow = 0;
        for n in 0..100_000u64 {
            let late = if n % 500 == 0 { 10 + n / 500 % 100 } else { 0 };
            slow += u32::from(judge.take(n * 20_000, (1 + late) * 1_000_000 + n % 999));
        }
        assert!((50..200).contains(&slow), "{slow}");
    }

    #[test]
    fn of_few_requests_none_is_slow_by_percentile() {
        let mut judge = Judge::new(Some(Slow::Percentile(0.99)));
        assert!((0..500).all(|n| !judge.take(n, n)));
    }

    #[test]
    fn a_fixed_time_needs_no_history() {
        let mut judge = Judge::new(Some(Slow::Longer(2_000)));
        assert!(judge.take(1, 2_000) && !judge.take(2, 1_999));
    }
}
