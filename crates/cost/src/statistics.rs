//! Estimates with intervals, from figures in the order of time.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Left out at each end: a turn in which the hypervisor took the CPU away, or a neighbour came.
const TRIMMED: f64 = 0.2;
/// Blocks that the figures are cut into. What drifts within a second lies in one block, so that the
/// drift is part of the spread between blocks.
const BLOCKS: usize = 12;
const RESAMPLES: usize = 1_000;
/// Student's t for 95 %, by degrees of freedom from 1 on.
const STUDENT: [f64; 12] = [
    12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18,
];
const NORMAL: f64 = 1.96;

/// A figure and its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl Estimate {
    /// A figure that is known exactly.
    #[must_use]
    pub fn exact(value: f64) -> Self {
        Self {
            value,
            low: value,
            high: value,
        }
    }

    /// Half of the interval, as a share of the figure.
    #[must_use]
    pub fn relative(&self) -> f64 {
        (self.high - self.low) / 2.0 / self.value.abs()
    }

    /// Whether the interval leaves open that there is nothing.
    #[must_use]
    pub fn is_below_noise(&self) -> bool {
        self.low <= 0.0
    }

    /// The sum of two that do not depend on each other.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let value = self.value + other.value;
        let down = (self.value - self.low).hypot(other.value - other.low);
        let up = (self.high - self.value).hypot(other.high - other.value);
        Self {
            value,
            low: value - down,
            high: value + up,
        }
    }

    /// The product of two that do not depend on each other, neither below 0.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let value = self.value * other.value;
        let down =
            ((self.value - self.low) * other.value).hypot((other.value - other.low) * self.value);
        let up =
            ((self.high - self.value) * other.value).hypot((other.high - other.value) * self.value);
        Self {
            value,
            low: (value - down).max(0.0),
            high: value + up,
        }
    }

    /// The same in another unit.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            value: self.value * factor,
            low: self.low * factor,
            high: self.high * factor,
        }
    }

    /// At least this share wide on either side.
    #[must_use]
    pub fn widened(self, share: f64) -> Self {
        let least = self.value.abs() * share;
        Self {
            value: self.value,
            low: self.low.min(self.value - least),
            high: self.high.max(self.value + least),
        }
    }
}

fn trimmed_mean_of(sorted: &[f64]) -> f64 {
    let cut = (sorted.len() as f64 * TRIMMED) as usize;
    let kept = &sorted[cut..sorted.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// The mean without the lowest and the highest fifth; `None` of nothing.
#[must_use]
pub fn trimmed_mean(figures: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    (!sorted.is_empty()).then(|| trimmed_mean_of(&sorted))
}

/// The trimmed mean of figures in the order of time, with an interval that holds slow drift.
///
/// Whole blocks of neighbouring figures are drawn again and again. With few blocks the spread of
/// what is drawn is too small, so it is widened as Student's distribution has it.
#[must_use]
pub fn blocked(figures: &[f64]) -> Option<Estimate> {
    let value = trimmed_mean(figures)?;
    let length = figures.len().div_ceil(BLOCKS);
    let blocks: Vec<&[f64]> = figures.chunks(length).collect();
    let count = blocks.len();
    if count < 3 {
        return None;
    }
    let mut random = Rng::with_seed(figures.len() as u64);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut drawn: Vec<f64> = Vec::with_capacity(figures.len());
            for _ in 0..count {
                drawn.extend(blocks[random.usize(..count)]);
            }
            drawn.sort_by(f64::total_cmp);
            trimmed_mean_of(&drawn)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let wider = student(count - 1) / NORMAL * (count as f64 / (count - 1) as f64).sqrt();
    let (low, high) = (means[RESAMPLES / 40], means[RESAMPLES - 1 - RESAMPLES / 40]);
    Some(Estimate {
        value,
        low: value - (value - low).max(0.0) * wider,
        high: value + (high - value).max(0.0) * wider,
    })
}

/// The mean of figures that do not depend on each other, with Student's interval. Of one figure
/// the interval is unknown: `None`.
#[must_use]
pub fn mean(figures: &[f64]) -> Option<Estimate> {
    let count = figures.len();
    if count < 2 {
        return None;
    }
    let value = figures.iter().sum::<f64>() / count as f64;
    let squares: f64 = figures.iter().map(|x| (x - value).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    let half = student(count - 1) * error;
    Some(Estimate {
        value,
        low: value - half,
        high: value + half,
    })
}

/// Student's t for 95 %.
#[must_use]
pub fn student(freedom: usize) -> f64 {
    match freedom {
        0 => f64::INFINITY,
        _ => STUDENT.get(freedom - 1).copied().unwrap_or(2.1),
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    /// Figures around 100 that drift, with some turns that were disturbed.
    fn drifting(seed: u64, count: usize) -> Vec<f64> {
        let mut random = Rng::with_seed(seed);
        let phase = random.f64() * 6.3;
        (0..count)
            .map(|i| {
                let drift = 4.0 * (phase + i as f64 / count as f64 * 40.0).sin();
                let hit = if random.f64() < 0.08 { 60.0 } else { 0.0 };
                100.0 + drift + hit + 10.0 * (random.f64() - 0.5)
            })
            .collect()
    }

    #[test]
    fn the_interval_covers_the_truth_nearly_as_often_as_it_says() {
        // What the trimmed mean of so skewed figures comes to in the long run.
        let truth = trimmed_mean(&drifting(1, 200_000)).expect("there are some");
        let covered = (0..200)
            .filter(|seed| {
                let found = blocked(&drifting(seed * 7 + 3, 96)).expect("many");
                (found.low..=found.high).contains(&truth)
            })
            .count();
        assert!(covered >= 180, "{covered} of 200");
    }

    #[test]
    fn disturbed_turns_change_little() {
        let found = blocked(&drifting(5, 96)).expect("many");
        assert!((found.value - 101.0).abs() < 3.0, "{found:?}");
    }

    #[test]
    fn too_little_has_no_interval() {
        assert_eq!(blocked(&[1.0, 2.0]), None);
        assert_eq!(mean(&[1.0]), None);
    }

    proptest! {
        #[test]
        fn a_figure_lies_in_its_interval(figures in proptest::collection::vec(-1e6f64..1e6, 3..200)) {
            if let Some(found) = blocked(&figures) {
                prop_assert!(found.low <= found.value && found.value <= found.high);
            }
        }

        #[test]
        fn a_product_lies_in_its_interval(a in 0f64..1e6, b in 0f64..1e6, wide in 0f64..0.5) {
            let [a, b] = [a, b].map(|x| Estimate::exact(x).widened(wide));
            let product = a.times(b);
            prop_assert!(product.low <= product.value && product.value <= product.high);
        }
    }
}
