//! The live distribution of latencies, for hedging without signals: of the last 10 to 20 seconds.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// After so long the older half of the samples is dropped.
const HALF: Duration = Duration::from_secs(10);
/// Fewer samples give no percentile.
const FEWEST: u64 = 100;
/// After this number of samples, the percentile is computed again.
const REFRESH: u64 = 64;
/// Longer ones count as this long.
const LONGEST_US: u64 = 60_000_000;

/// Latencies of two consecutive periods.
#[derive(Debug)]
pub struct Latencies {
    quantile: f64,
    now: Histogram<u32>,
    before: Histogram<u32>,
    turned: Instant,
    current: Option<Duration>,
    fresh: u64,
}

impl Latencies {
    /// `quantile`: which one [`threshold`](Latencies::threshold) is, 0.95 for p95.
    #[must_use]
    pub fn new(quantile: f64, now: Instant) -> Self {
        let empty = || {
            Histogram::new_with_bounds(1, LONGEST_US, 2)
                .unwrap_or_else(|e| unreachable!("the bounds are constants: {e}"))
        };
        Self {
            quantile,
            now: empty(),
            before: empty(),
            turned: now,
            current: None,
            fresh: 0,
        }
    }

    /// From now on, [`threshold`](Latencies::threshold) is this quantile.
    pub fn set_quantile(&mut self, quantile: f64) {
        self.quantile = quantile;
        self.current = self.compute();
    }

    /// A request took this long.
    pub fn record(&mut self, latency: Duration, now: Instant) {
        if now.saturating_duration_since(self.turned) >= HALF {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.reset();
            self.turned = now;
        }
        self.now.saturating_record(latency.as_micros() as u64);
        self.fresh += 1;
        if self.fresh >= REFRESH || self.current.is_none() {
            self.fresh = 0;
            self.current = self.compute();
        }
    }

    fn compute(&self) -> Option<Duration> {
        let mut both = self.now.clone();
        both.add(&self.before).ok()?;
        (both.len() >= FEWEST).then(|| Duration::from_micros(both.value_at_quantile(self.quantile)))
    }

    /// The percentile; `None`: too few samples.
    #[must_use]
    pub fn threshold(&self) -> Option<Duration> {
        self.current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_samples_and_follows_the_latest() {
        let start = Instant::now();
        let mut latencies = Latencies::new(0.95, start);
        for us in 1..=99 {
            latencies.record(Duration::from_micros(us * 10), start);
        }
        assert_eq!(latencies.threshold(), None);
        for _ in 0..64 {
            latencies.record(Duration::from_micros(10), start);
        }
        assert!(latencies.threshold().is_some());
        let later = start + HALF;
        for _ in 0..200 {
            latencies.record(Duration::from_millis(50), later);
        }
        let last = later + HALF;
        for _ in 0..200 {
            latencies.record(Duration::from_millis(50), last);
        }
        let p95 = latencies.threshold().expect("enough samples");
        assert!((49..=51).contains(&p95.as_millis()), "{p95:?}");
    }
}
