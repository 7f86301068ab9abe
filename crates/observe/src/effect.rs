//! What observing costs the application: its own speed with the observer and without it.
//!
//! The observer switches itself off for random pieces of time. The application's progress is a
//! counter, read only at the ends of the pieces. Each piece without is held against the mean of the
//! pieces with beside it, so that what drifts slowly cancels; of the logarithms of these ratios the
//! trimmed mean counts, so that a piece in which the hypervisor took the CPU away does not, and its
//! bootstrap gives the interval.

use fastrand::Rng;
use serde::Serialize;

/// Left out at each end, of all ratios.
const TRIMMED: f64 = 0.1;
/// Fewer ratios say nothing.
const FEWEST: usize = 10;
const RESAMPLES: usize = 1_000;

/// A piece of time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Phase {
    /// Whether signals were read.
    pub on: bool,
    /// The application's progress in it.
    pub progress: u64,
    /// How long it was, in cycles.
    pub cycles: u64,
    /// Samples taken in it.
    pub samples: u64,
    /// Values in them that were not what the sample before had seen.
    pub changes: u64,
}

impl Phase {
    fn speed(&self) -> f64 {
        self.progress as f64 / self.cycles.max(1) as f64
    }
}

/// What the observer took from the application's speed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Effect {
    /// 1 − speed with / speed without; below 0 where it was faster.
    pub share: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Pieces of time without the observer.
    pub phases: usize,
}

/// The logarithms of with over without, one for each piece without that has a neighbour with.
fn ratios(phases: &[Phase]) -> Vec<f64> {
    let mut ratios = Vec::new();
    for (i, off) in phases.iter().enumerate().filter(|(_, phase)| !phase.on) {
        let before = i.checked_sub(1).and_then(|i| phases.get(i));
        let beside = [before, phases.get(i + 1)];
        let on: Vec<f64> = beside
            .into_iter()
            .flatten()
            .filter(|phase| phase.on)
            .map(Phase::speed)
            .collect();
        let with = on.iter().sum::<f64>() / on.len() as f64;
        let ratio = (with / off.speed()).ln();
        if ratio.is_finite() {
            ratios.push(ratio);
        }
    }
    ratios
}

fn trimmed_mean(sorted: &[f64]) -> f64 {
    let cut = (sorted.len() as f64 * TRIMMED) as usize;
    let kept = &sorted[cut..sorted.len() - cut];
    kept.iter().sum::<f64>() / kept.len() as f64
}

/// What follows of phases in the order of time; `None` where there are too few, or no progress.
#[must_use]
pub fn effect(phases: &[Phase]) -> Option<Effect> {
    let mut ratios = ratios(phases);
    if ratios.len() < FEWEST {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    let mut random = Rng::with_seed(ratios.len() as u64);
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let mut drawn: Vec<f64> = (0..ratios.len())
                .map(|_| ratios[random.usize(..ratios.len())])
                .collect();
            drawn.sort_by(f64::total_cmp);
            trimmed_mean(&drawn)
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let share = |log: f64| 1.0 - log.exp();
    Some(Effect {
        share: share(trimmed_mean(&ratios)),
        low: share(means[RESAMPLES - 1 - RESAMPLES / 40]),
        high: share(means[RESAMPLES / 40]),
        phases: ratios.len(),
    })
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    /// Phases of an application whose speed drifts and that now and then stops for a while.
    fn phases(planted: f64, seed: u64, count: usize) -> Vec<Phase> {
        let mut random = Rng::with_seed(seed);
        let mut on = false;
        (0..count)
            .map(|i| {
                on = !on || random.f64() < 0.5;
                let cycles = 5_000_000 + random.u64(..5_000_000);
                let drift = 1.0 + 0.2 * (i as f64 / 300.0).sin();
                let noise = 1.0 + 0.02 * (random.f64() - 0.5);
                let stopped = if random.f64() < 0.03 { 0.5 } else { 1.0 };
                let speed = 0.01 * drift * noise * stopped * if on { 1.0 - planted } else { 1.0 };
                Phase {
                    on,
                    progress: (speed * cycles as f64) as u64,
                    cycles,
                    ..Phase::default()
                }
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn an_effect_lies_in_its_interval(planted in -0.02f64..0.5, seed: u64) {
            let found = effect(&phases(planted, seed, 400)).expect("many phases");
            prop_assert!(found.low <= found.share && found.share <= found.high);
        }
    }

    #[test]
    fn a_planted_effect_is_found() {
        let mut errors: Vec<f64> = (0..200)
            .map(|seed| {
                let planted = -0.02 + 0.0026 * seed as f64;
                let found = effect(&phases(planted, seed * 7 + 1, 1_000)).expect("many phases");
                (found.share - planted).abs()
            })
            .collect();
        errors.sort_by(f64::total_cmp);
        // By chance: where a program stood still in more pieces than are left out at an end.
        let (median, most) = (errors[100], errors[197]);
        assert!(median < 0.001 && most < 0.003, "{median} {most}");
    }

    #[test]
    fn the_interval_covers_the_truth_nearly_as_often_as_it_says() {
        let covered = (0..100)
            .filter(|seed| {
                let found = effect(&phases(0.01, seed * 7 + 1, 400)).expect("many phases");
                (found.low..=found.high).contains(&0.01)
            })
            .count();
        assert!(covered >= 85, "{covered} of 100");
    }

    #[test]
    fn too_little_is_no_figure() {
        assert_eq!(effect(&phases(0.1, 1, 8)), None);
        let idle = Phase {
            on: true,
            cycles: 1,
            ..Phase::default()
        };
        let off = Phase { on: false, ..idle };
        assert_eq!(effect(&[idle, off].repeat(100)), None);
    }
}
