//! Intervals of figures that samples give: a bootstrap over blocks of samples.
//!
//! Neighbouring samples resemble each other, because a program does the same thing for a while. So
//! whole blocks of neighbours are drawn.

use fastrand::Rng;
use serde::Serialize;

/// Draws.
pub const DRAWS: usize = 200;
/// Samples of a block, at most. Fewer samples have shorter blocks.
const BLOCK: usize = 16;
/// Fewer blocks give no interval.
const FEWEST_BLOCKS: usize = 10;

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// The figure.
    pub value: f64,
    /// The lower end; `None` if there are too few samples.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

impl Share {
    /// From the figure and what the draws gave. The interval has 1.96 standard deviations of the
    /// draws on each side, within 0 and 1.
    #[must_use]
    pub fn of(value: f64, draws: &[f64]) -> Self {
        let draws: Vec<f64> = draws.iter().copied().filter(|d| d.is_finite()).collect();
        let known = draws.len() * 2 >= DRAWS && value.is_finite();
        let mean = draws.iter().sum::<f64>() / draws.len().max(1) as f64;
        let squares: f64 = draws.iter().map(|d| (d - mean).powi(2)).sum();
        let half = 1.96 * (squares / draws.len().max(1) as f64).sqrt();
        Self {
            value,
            low: known.then(|| (value - half).max(0.0)),
            high: known.then(|| (value + half).min(1.0)),
        }
    }
}

/// How often each sample was drawn, for each of [`DRAWS`] draws; none if there are too few samples.
#[must_use]
pub fn draws(samples: usize, seed: u64) -> Vec<Vec<u16>> {
    let block = (samples / 64).clamp(1, BLOCK);
    let blocks = samples / block;
    if blocks < FEWEST_BLOCKS {
        return Vec::new();
    }
    let mut rng = Rng::with_seed(seed);
    let draw = |_| {
        let mut counts = vec![0u16; samples];
        for _ in 0..blocks {
            let start = rng.usize(..samples);
            for place in start..start + block {
                let count = &mut counts[place % samples];
                *count = count.saturating_add(1);
            }
        }
        counts
    };
    (0..DRAWS).map(draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_of_a_share_covers_the_truth_as_often_as_it_says() {
        let mut rng = Rng::with_seed(7);
        let covers = |seed: u64| {
            let hits: Vec<f64> = (0..400).map(|_| f64::from(rng.f64() < 0.3)).collect();
            let of = |weights: &dyn Fn(usize) -> f64| {
                let all: f64 = (0..hits.len()).map(weights).sum();
                (0..hits.len()).map(|i| weights(i) * hits[i]).sum::<f64>() / all
            };
            let drawn: Vec<f64> = draws(hits.len(), seed)
                .iter()
                .map(|counts| of(&|i| f64::from(counts[i])))
                .collect();
            let share = Share::of(of(&|_| 1.0), &drawn);
            share.low.expect("enough") <= 0.3 && 0.3 <= share.high.expect("enough")
        };
        let covered = (0..200).map(covers).filter(|covers| *covers).count();
        assert!(covered >= 180, "{covered} of 200");
    }

    #[test]
    fn too_few_samples_have_no_interval() {
        assert!(draws(9, 1).is_empty());
        assert_eq!(Share::of(0.5, &[]).low, None);
    }
}
