//! When requests are due: a Poisson process, that is, gaps drawn from the exponential distribution.
//!
//! Due times are drawn one from the other and never from the clock: a generator that was held up
//! catches up, and the requests it issues late carry the time at which they should have gone out.

use crate::clock::Nanos;
use crate::random::Random;

/// An endless sequence of due times.
pub struct Arrivals {
    random: Random,
    mean_gap_ns: f64,
    /// Kept as a float: rounding each gap to whole nanoseconds would shift high rates.
    due_ns: f64,
    start: Nanos,
}

impl Arrivals {
    /// Arrivals after `start`, `rate` of them a second on average.
    pub fn poisson(start: Nanos, rate: f64, random: Random) -> Self {
        let mut arrivals = Self {
            random,
            mean_gap_ns: 1e9 / rate,
            due_ns: 0.0,
            start,
        };
        arrivals.advance();
        arrivals
    }

    /// When the next request is due.
    pub fn due(&self) -> Nanos {
        self.start + Nanos(self.due_ns as u64)
    }

    /// Moves on to the one after.
    pub fn advance(&mut self) {
        // 1 - unit() is in (0, 1], so the logarithm is finite.
        self.due_ns += -(1.0 - self.random.unit()).ln() * self.mean_gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(rate: f64, n: usize) -> Vec<f64> {
        let mut arrivals = Arrivals::poisson(Nanos(0), rate, Random::seeded(42));
        let mut last = Nanos(0);
        (0..n)
            .map(|_| {
                let due = arrivals.due();
                arrivals.advance();
                let gap = (due - last).0 as f64;
                last = due;
                gap
            })
            .collect()
    }

    #[test]
    fn the_mean_rate_is_the_one_asked_for() {
        for rate in [10.0, 10_000.0, 3_000_000.0] {
            let gaps = gaps(rate, 200_000);
            let reached = gaps.len() as f64 / (gaps.iter().sum::<f64>() / 1e9);
            assert!((reached / rate - 1.0).abs() < 0.01, "{reached} for {rate}");
        }
    }

    #[test]
    fn gaps_are_exponential() {
        let mut gaps = gaps(10_000.0, 100_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!(
            (variance.sqrt() / mean - 1.0).abs() < 0.02,
            "its deviation equals its mean"
        );

        // Kolmogorov-Smirnov against 1 - exp(-x / mean); 1.63 / sqrt(n) is the 1 % bound.
        gaps.sort_by(f64::total_cmp);
        let n = gaps.len() as f64;
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| ((i as f64 + 0.5) / n - (1.0 - (-gap / 100_000.0).exp())).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.63 / n.sqrt(), "{distance}");
    }

    #[test]
    fn gaps_do_not_depend_on_the_ones_before() {
        let gaps = gaps(10_000.0, 100_000);
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let covariance = gaps
            .windows(2)
            .map(|w| (w[0] - mean) * (w[1] - mean))
            .sum::<f64>()
            / (gaps.len() - 1) as f64;
        assert!((covariance / mean.powi(2)).abs() < 0.02);
    }
}
