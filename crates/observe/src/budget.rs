//! The finest period whose effect on the application stays within a budget.
//!
//! What observing costs goes about as 1 / period: each sample takes cache lines from the
//! application for a moment. So the search steps in the period's logarithm by how far a round's
//! effect is from the budget, in full until it has been on both sides of it, then by ever smaller
//! parts (Robbins and Monro 1951), for one round's effect is mostly noise; what it settles on is the mean
//! of the later steps (Polyak and Juditsky 1992).

use crate::effect::{Phase, effect};

/// Pieces without the observer in a round.
const ROUND: usize = 24;
/// A period is changed by no more than this factor at once.
const MOST_AT_ONCE: f64 = 4.0;
/// Below, no machine samples any faster.
const SHORTEST: f64 = 32.0;
/// Above, too few samples come to be of use.
const LONGEST: f64 = 1e9;
const FIRST: f64 = 4_000.0;

/// The search, fed with phases in the order of time.
#[derive(Debug)]
pub(crate) struct Search {
    budget: f64,
    log: f64,
    round: Vec<Phase>,
    seen: [bool; 2],
    rounds: u32,
    settled: Vec<f64>,
}

impl Search {
    pub(crate) fn new(budget: f64) -> Self {
        Self {
            budget,
            log: FIRST.ln(),
            round: Vec::new(),
            seen: [false; 2],
            rounds: 0,
            settled: Vec::new(),
        }
    }

    /// Takes a phase; at the end of a round tells the next period.
    pub(crate) fn take(&mut self, phase: Phase) -> Option<u64> {
        self.round.push(phase);
        let without = self.round.iter().filter(|phase| !phase.on).count();
        if without < ROUND || !phase.on {
            return None;
        }
        let found = effect(&self.round);
        self.round.clear();
        // No progress, no figure: whether it is the observer's doing can't be told.
        let share = found?.share;
        let miss = (share - self.budget) / self.budget;
        self.seen[usize::from(miss > 0.0)] = true;
        let both = self.seen == [true; 2];
        self.rounds += u32::from(both);
        let gain = if both {
            f64::from(self.rounds).powf(-0.7)
        } else {
            1.0
        };
        // Far above the budget, the ratio says more of how far than the difference.
        let step = if miss > 0.0 { (1.0 + miss).ln() } else { miss };
        let most = MOST_AT_ONCE.ln();
        self.log = (self.log + gain * step.clamp(-most, most)).clamp(SHORTEST.ln(), LONGEST.ln());
        if both {
            self.settled.push(self.log);
        }
        Some(self.log.exp() as u64)
    }

    /// What the search came to.
    pub(crate) fn period(&self) -> u64 {
        let later = &self.settled[self.settled.len() / 2..];
        let log = match later {
            [] => self.log,
            later => later.iter().sum::<f64>() / later.len() as f64,
        };
        log.exp() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::random::Random;

    /// Searches with an application that loses `cost` cycles to each sample.
    fn found(budget: f64, cost: f64, noise: f64, rounds: usize, seed: u64) -> f64 {
        let mut search = Search::new(budget);
        let mut random = Random::new(seed);
        let mut period = FIRST;
        for i in 0..rounds * 2 * (ROUND + 1) {
            let on = i % 2 == 0;
            let lost = if on {
                (cost / period.max(100.0)).min(0.9)
            } else {
                0.0
            };
            let noise = 1.0 + noise * (random.share() + random.share() - 1.0);
            let cycles = 10_000_000;
            let progress = (cycles as f64 * 0.1 * (1.0 - lost) * noise) as u64;
            if let Some(next) = search.take(Phase {
                on,
                progress,
                cycles,
            }) {
                period = next as f64;
            }
        }
        cost / (search.period() as f64).max(100.0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_budget_is_met_within_half_a_percent(cost in 3.0f64..3_000.0, seed: u64) {
            let effect = found(0.01, cost, 0.02, 25, seed);
            prop_assert!((effect - 0.01).abs() < 0.005, "{effect} at a cost of {cost}");
        }
    }

    #[test]
    fn what_costs_nothing_is_sampled_as_fast_as_it_goes() {
        let mut search = Search::new(0.01);
        for i in 0..2_000 {
            search.take(Phase {
                on: i % 2 == 0,
                progress: 1_000,
                cycles: 1_000,
            });
        }
        assert!(search.period() <= SHORTEST as u64 + 1);
    }
}
