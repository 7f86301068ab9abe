//! The finest period whose effect on the application stays within a budget.
//!
//! What a sample costs the application is the cache lines that it takes: a value that has changed since
//! the sample before was written, so its line was fetched back, and will be again. The observer sees
//! how many there were, exactly. So the model is a line: effect = `still` + `each` × changed values a
//! cycle. It holds where the program writes more often than is sampled (there it goes as 1 / period)
//! and where it writes less often (there the period changes nothing).
//!
//! One round's effect is mostly noise; how often values changed is not. So the latest rounds are
//! kept, and the line is fitted to all of them, old ones and those at periods far from the present
//! one counting less; then the period is changed by how far the changes a cycle are from those that
//! would meet the budget.
//!
//! The line itself can change at once: the host of a virtual machine moves its CPUs apart, the
//! application takes up other work. A round that is far from it begins the search anew.

use std::collections::VecDeque;

use crate::effect::{Phase, effect};

/// Pieces without the observer in a round.
const ROUND: usize = 24;
/// A period is changed by no more than this factor at once.
const MOST_AT_ONCE: f64 = 4.0;
/// Below, no machine samples any faster.
const SHORTEST: f64 = 32.0;
/// Above, too few samples come in the time of a search.
const LONGEST: f64 = 1e7;
const FIRST: f64 = 4_000.0;
/// How much of the budget, more or less, the observer is expected to take without any changed value: by
/// its own running, on a hardware thread beside. Only a guess to begin with.
const STILL: f64 = 0.5;
/// How wrong the line is for periods e times as long, as a share of their effect.
const FAR: f64 = 0.2;
/// A round's error is no smaller than this share of the budget: its own interval is an estimate.
const LEAST_ERROR: f64 = 0.1;
/// So many rounds are kept: ten seconds and more.
const MOST_ROUNDS: usize = 50;
/// What a round says counts for this much less with each that follows.
const AGING: f64 = 0.93;
/// A round is far from the line by so many of its errors, and by this share of the budget. Fewer
/// errors come by chance: a round's own is an estimate from 24 pieces, some of them disturbed.
const SURPRISE: f64 = 5.0;
const LEAST_SURPRISE: f64 = 0.5;

/// What one round showed.
#[derive(Debug, Clone, Copy)]
struct Round {
    /// The logarithm of the mean period, in cycles.
    log: f64,
    /// Changed values a cycle.
    changes: f64,
    /// What was taken from the application's speed.
    share: f64,
    /// Its standard error.
    error: f64,
}

/// What the application pays, as a share of its speed.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    /// Whatever is sampled.
    still: f64,
    /// For a changed value a cycle.
    each: f64,
}

impl Line {
    /// Least squares, weighted; `still` is drawn to 0 as if that had been measured with `guess`.
    fn fit(rounds: &VecDeque<Round>, log: f64, guess: f64) -> Option<Self> {
        let (mut w, mut wx, mut wxx, mut wy, mut wxy) = (1.0 / (guess * guess), 0.0, 0.0, 0.0, 0.0);
        let mut age = 1.0;
        for round in rounds.iter().rev() {
            let far = FAR * round.share.max(0.0) * (round.log - log).abs();
            let weight = age / (round.error * round.error + far * far);
            age *= AGING;
            w += weight;
            wx += weight * round.changes;
            wxx += weight * round.changes * round.changes;
            wy += weight * round.share;
            wxy += weight * round.changes * round.share;
        }
        let determinant = w * wxx - wx * wx;
        (determinant > 0.0).then(|| Self {
            still: (wxx * wy - wx * wxy) / determinant,
            each: (w * wxy - wx * wy) / determinant,
        })
    }

    /// By which factor `changes` are too many for the budget.
    fn excess(self, budget: f64, changes: f64) -> f64 {
        let left = budget - self.still;
        if left <= 0.0 {
            f64::INFINITY
        } else {
            (self.each * changes / left).max(0.0)
        }
    }
}

/// The search, fed with phases in the order of time.
#[derive(Debug)]
pub(crate) struct Search {
    budget: f64,
    log: f64,
    phases: Vec<Phase>,
    rounds: VecDeque<Round>,
}

impl Search {
    pub(crate) fn new(budget: f64) -> Self {
        Self {
            budget,
            log: FIRST.ln(),
            phases: Vec::new(),
            rounds: VecDeque::new(),
        }
    }

    /// Takes a phase; at the end of a round tells the next period.
    pub(crate) fn take(&mut self, phase: Phase) -> Option<u64> {
        self.phases.push(phase);
        let without = self.phases.iter().filter(|phase| !phase.on).count();
        if without < ROUND || !phase.on {
            return None;
        }
        let round = self.round();
        self.phases.clear();
        // No progress, no figure: whether it is the observer's doing can't be told.
        let round = round?;
        let guess = STILL * self.budget;
        if self.is_surprising(round, guess) {
            self.rounds.clear();
        } else if self.rounds.len() == MOST_ROUNDS {
            self.rounds.pop_front();
        }
        self.rounds.push_back(round);
        let line = Line::fit(&self.rounds, round.log, guess);
        let excess = line.map_or(0.0, |line| line.excess(self.budget, round.changes));
        // From the period that was, not from the one that was asked for: it may have been too short.
        let step = excess.clamp(1.0 / MOST_AT_ONCE, MOST_AT_ONCE).ln();
        self.log = (round.log + step).clamp(SHORTEST.ln(), LONGEST.ln());
        Some(self.period())
    }

    /// Whether what came before says nothing of this round.
    fn is_surprising(&self, round: Round, guess: f64) -> bool {
        let Some(line) = Line::fit(&self.rounds, round.log, guess) else {
            return false;
        };
        let expected = line.still + line.each * round.changes;
        // Of another period than all before, the line knows less.
        let distance = |known: &Round| (known.log - round.log).abs();
        let nearest = self
            .rounds
            .iter()
            .map(distance)
            .fold(f64::INFINITY, f64::min);
        let error = round.error.hypot(FAR * expected.max(0.0) * nearest);
        (round.share - expected).abs() > (SURPRISE * error).max(LEAST_SURPRISE * self.budget)
    }

    fn round(&self) -> Option<Round> {
        let found = effect(&self.phases)?;
        let on = || self.phases.iter().filter(|phase| phase.on);
        let cycles = on().map(|phase| phase.cycles).sum::<u64>() as f64;
        let samples = on().map(|phase| phase.samples).sum::<u64>().max(1) as f64;
        let changes = on().map(|phase| phase.changes).sum::<u64>() as f64;
        Some(Round {
            log: (cycles / samples).max(1.0).ln(),
            changes: changes / cycles.max(1.0),
            share: found.share,
            error: ((found.high - found.low) / (2.0 * 1.96)).max(LEAST_ERROR * self.budget),
        })
    }

    /// What the search came to.
    pub(crate) fn period(&self) -> u64 {
        self.log.exp().round() as u64
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;
    use proptest::prelude::*;

    use super::*;

    /// An application that writes once in `interval` cycles, and loses `cost` each time that it finds
    /// the line taken; and `still` of its speed whenever somebody observes.
    #[derive(Debug, Clone, Copy)]
    struct Application {
        interval: f64,
        cost: f64,
        still: f64,
    }

    /// No sample takes less.
    const FASTEST: f64 = 300.0;

    impl Application {
        fn changes(self, period: f64) -> f64 {
            1.0 / period.max(FASTEST).max(self.interval)
        }

        fn effect(self, period: f64) -> f64 {
            (self.still + self.cost * self.changes(period)).min(0.9)
        }

        /// The period that is found, and what observing takes from it while it is reported: in as many rounds
        /// more.
        fn observed(self, budget: f64, noise: f64, rounds: usize, seed: u64) -> (f64, f64) {
            let mut observer = Observer::new(budget, noise, seed);
            observer.mean_effect(self, rounds);
            let effect = observer.mean_effect(self, rounds);
            (observer.search.period() as f64, effect)
        }
    }

    struct Observer {
        search: Search,
        period: f64,
        noise: f64,
        random: Rng,
    }

    impl Observer {
        fn new(budget: f64, noise: f64, seed: u64) -> Self {
            Self {
                search: Search::new(budget),
                period: FIRST,
                noise,
                random: Rng::with_seed(seed),
            }
        }

        /// What it takes in so many rounds.
        fn mean_effect(&mut self, program: Application, rounds: usize) -> f64 {
            let effects = (0..rounds).map(|_| {
                let effect = program.effect(self.period);
                self.round(program);
                effect
            });
            effects.sum::<f64>() / rounds as f64
        }

        fn round(&mut self, program: Application) {
            for i in 0..2 * (ROUND + 1) {
                let on = i % 2 == 0;
                let lost = if on { program.effect(self.period) } else { 0.0 };
                let noise = 1.0 + self.noise * (self.random.f64() + self.random.f64() - 1.0);
                let cycles = 10_000_000u64;
                let seen = |each: f64| if on { (cycles as f64 * each) as u64 } else { 0 };
                let next = self.search.take(Phase {
                    on,
                    progress: (cycles as f64 * 0.1 * (1.0 - lost) * noise) as u64,
                    cycles,
                    samples: seen(1.0 / self.period.max(FASTEST)),
                    changes: seen(program.changes(self.period)),
                });
                self.period = next.map_or(self.period, |next| next as f64);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_budget_is_met_within_half_a_percent(
            interval in 1.0f64..11.0, cost in 3.0f64..3_000.0, still in 0.0f64..0.004, seed: u64,
        ) {
            let program = Application { interval: interval.exp(), cost, still };
            let (period, effect) = program.observed(0.01, 0.04, 40, seed);
            // Who writes so rarely, or loses so little, can be sampled as fast as it goes.
            let most = program.effect(FASTEST);
            let meets = (effect - 0.01).abs() < 0.005;
            prop_assert!(meets || most < 0.015 && effect < 0.015,
                "{effect} at {period}, at most {most}: {program:?}");
        }
    }

    #[test]
    fn where_a_sample_suddenly_takes_more_or_less_the_budget_is_met_again_after_eight_rounds() {
        for seed in 0..100 {
            // Rounds are then as wrong as on a virtual machine: by 0.2 %.
            let mut observer = Observer::new(0.01, 0.02, seed);
            for cost in [25.0, 500.0, 25.0, 500.0] {
                let program = Application {
                    interval: 10.0,
                    cost,
                    still: 0.0,
                };
                observer.mean_effect(program, 8);
                let mean = observer.mean_effect(program, 10);
                assert!((mean - 0.01).abs() < 0.005, "{mean} at {cost}, seed {seed}");
            }
        }
    }

    #[test]
    fn what_costs_nothing_is_sampled_as_fast_as_it_goes() {
        let program = Application {
            interval: 1_000.0,
            cost: 0.0,
            still: 0.0,
        };
        let (period, _) = program.observed(0.01, 0.0, 40, 1);
        assert!(period <= FASTEST, "{period}");
    }

    #[test]
    fn what_no_period_would_keep_within_the_budget_is_sampled_ever_less() {
        let program = Application {
            interval: 1_000.0,
            cost: 100.0,
            still: 0.05,
        };
        let (period, _) = program.observed(0.01, 0.01, 40, 1);
        assert!(period > 1e6, "{period}");
    }
}
