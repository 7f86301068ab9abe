//! Figures with their 95 % intervals, from a series whose neighbours resemble each other.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The share of values to leave out at each end, where a few are disturbed.
pub const FEW: f64 = 0.1;
/// The same where up to 40 % of the values may be disturbed: nearly the median.
pub const MANY: f64 = 0.4;
const RESAMPLES: usize = 2_000;
/// Fewer values give no interval.
pub const FEWEST: usize = 8;

/// A figure and its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The figure.
    pub value: f64,
    /// The lower end of the 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether a ratio surely differs from 1.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.high < 1.0 || self.low > 1.0
    }

    /// Half the interval's width, as a share of the figure.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value
    }
}

/// The trimmed geometric mean of positive values in the order of time; `None` if there are too few.
/// `trimmed` is the share of values to leave out at each end.
///
/// The interval is that of a circular block bootstrap. A block has as many values as the cube root
/// of their number, so that a slow change of the machine widens the interval.
#[must_use]
pub fn geometric_mean(values: &[f64], trimmed: f64, seed: u64) -> Option<Interval> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    if logs.len() < FEWEST || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let block = (logs.len() as f64).cbrt().ceil() as usize;
    let mut rng = Rng::with_seed(seed);
    let mut resample = Vec::with_capacity(logs.len() + block);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            resample.clear();
            while resample.len() < logs.len() {
                let start = rng.usize(..logs.len());
                resample.extend((start..start + block).map(|i| logs[i % logs.len()]));
            }
            resample.truncate(logs.len());
            trimmed_mean(&mut resample, trimmed)
        })
        .collect();
    means.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| means[(share * (RESAMPLES - 1) as f64).round() as usize].exp();
    Some(Interval {
        value: trimmed_mean(&mut logs.clone(), trimmed).exp(),
        low: at(0.025),
        high: at(0.975),
    })
}

fn trimmed_mean(values: &mut [f64], trimmed: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let cut = (values.len() as f64 * trimmed) as usize;
    let kept = &values[cut..values.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The median; 0 of nothing.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// Median, 5th and 95th percentile; `None` of nothing.
#[must_use]
pub fn spread(values: &[f64]) -> Option<[f64; 3]> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| sorted.get((sorted.len() as f64 * share) as usize).copied();
    Some([at(0.5)?, at(0.05)?, at(0.95)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A series around 2 in which each value resembles the one before.
    fn series(seed: u64, likeness: f64) -> Vec<f64> {
        let mut rng = Rng::with_seed(seed);
        let mut drift = 0.0;
        let step = |_| {
            drift = likeness * drift + 0.1 * (rng.f64() + rng.f64() - 1.0);
            2.0 * f64::exp(drift)
        };
        (0..80).map(step).collect()
    }

    #[test]
    fn the_interval_covers_the_truth_nearly_as_often_as_it_says() {
        for (likeness, least) in [(0.0, 180), (0.4, 170)] {
            let covers = |seed: &u64| {
                let found = geometric_mean(&series(*seed, likeness), FEW, 1).expect("an interval");
                assert!(found.low <= found.value && found.value <= found.high);
                (found.low..=found.high).contains(&2.0)
            };
            let covered = (0..200).filter(covers).count();
            assert!(covered >= least, "{covered} of 200 at {likeness}");
        }
    }

    #[test]
    fn too_little_or_no_number_gives_no_figure() {
        assert_eq!(geometric_mean(&[1.0; 7], FEW, 1), None);
        assert_eq!(geometric_mean(&[0.0; 20], FEW, 1), None);
        assert_eq!(geometric_mean(&[f64::NAN; 20], FEW, 1), None);
        let same = geometric_mean(&[3.0; 8], MANY, 1).expect("an interval");
        assert!((same.value - 3.0).abs() < 1e-9 && same.half_width() < 1e-9);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some([2.0, 1.0, 3.0]));
        assert_eq!(spread(&[]), None);
    }
}
