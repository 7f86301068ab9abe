//! A recorder's duty cycle: the share of the time for which it is attached, so that it costs a program no
//! more than a budget.
//!
//! Attached, it slows the program down by some share; detached, by nothing. So the budget over the
//! slow-down is the share of the time that it may be attached. The slow-down is predicted before
//! the first phase. Each phase with the recorder and the one without it after that then measure it.

use std::time::Duration;

use crate::phases::{By, Measured, Phase, compare};
use crate::statistics::Estimate;

/// It is attached for no more of the time: in the rest the program's own speed is measured.
const MOST: f64 = 0.9;
/// Nor for less: otherwise a phase comes once in a quarter of an hour.
const LEAST: f64 = 0.002;
/// The slow-down while nothing is known of it.
const UNKNOWN: f64 = 0.5;
/// Shorter phases say little of the program's speed.
const SHORTEST_WITH: Duration = Duration::from_secs(2);
/// The phases of a long recording are longer, as each has to attach; it has this many all the same.
const LONGEST_WITH: Duration = Duration::from_secs(10);
const PHASES: u32 = 60;
/// How long they are where nobody says how long the recording is.
const USUAL_WITH: Duration = Duration::from_secs(3);
const SHORTEST_WITHOUT: Duration = Duration::from_secs(1);
/// Fewer pairs of phases decide nothing.
const ENOUGH: usize = 5;
/// How many pairs of phases are remembered: the program's work changes.
const REMEMBERED: usize = 120;

/// When to attach and when to detach.
#[derive(Debug)]
pub struct DutyCycle {
    budget: f64,
    predicted: Option<Estimate>,
    pairs: Vec<(Phase, Phase)>,
}

/// What a recorder has cost.
#[derive(Debug, Clone)]
pub struct Spent {
    /// The share of the time for which it was attached.
    pub share: f64,
    /// How much more time the same work took while it was: 0.01 is 1 %.
    pub while_attached: Measured,
    /// The same of the whole time. `None`: the program has no progress that can be seen, or there were too
    /// few phases.
    pub overall: Option<Estimate>,
    /// What was predicted of the whole time, if it was.
    pub predicted: Option<Estimate>,
}

impl DutyCycle {
    /// `budget`: how much more time the program's work may take, 0.01 is 1 %. `predicted`: the slow-down
    /// while the recorder is attached.
    #[must_use]
    pub fn new(budget: f64, predicted: Option<Estimate>) -> Self {
        Self {
            budget,
            predicted,
            pairs: Vec::new(),
        }
    }

    /// What was not predicted at the begin is predicted by now.
    pub(crate) fn predict(&mut self, slowdown: Option<Estimate>) {
        self.predicted = slowdown;
    }

    pub(crate) fn is_predicted(&self) -> bool {
        self.predicted.is_some()
    }

    /// For which share of the time the recorder may be attached, by what is known now.
    #[must_use]
    pub fn share(&self) -> f64 {
        let high = self.slowdown().map_or(UNKNOWN, |slowdown| slowdown.high);
        (self.budget / high.max(f64::MIN_POSITIVE)).clamp(LEAST, MOST)
    }

    /// Whether the least share costs more than the budget already.
    #[must_use]
    pub fn is_too_small(&self) -> bool {
        let high = self.slowdown().map_or(UNKNOWN, |slowdown| slowdown.high);
        high * LEAST > self.budget
    }

    /// The slow-down as predicted, until what is measured is larger, or has the lower upper end.
    fn slowdown(&self) -> Option<Estimate> {
        let measured = compare(&self.pairs, By::Cpu).slowdown;
        let measured = measured.filter(|_| self.pairs.len() >= ENOUGH);
        match (self.predicted, measured) {
            (Some(predicted), Some(measured))
                if measured.high > predicted.high && measured.value <= predicted.high =>
            {
                Some(predicted)
            }
            (predicted, measured) => measured.or(predicted),
        }
    }

    /// How long the next phase with the recorder is. `left`: the time that is left of the recording.
    #[must_use]
    pub fn with(&self, left: Option<Duration>) -> Duration {
        let share = self.share();
        let least = SHORTEST_WITH.max(SHORTEST_WITHOUT.mul_f64(share / (1.0 - share)));
        let Some(left) = left else {
            return least.max(USUAL_WITH);
        };
        let whole = left.mul_f64(share);
        let length = least.max((whole / PHASES).min(LONGEST_WITH));
        // The last phase with its rest fills what is left.
        let cycles = whole.div_duration_f64(length).floor().max(1.0);
        whole.div_f64(cycles)
    }

    /// How long the phase without it is, after one with it of this length.
    #[must_use]
    pub fn without(&self, with: Duration) -> Duration {
        with.mul_f64(1.0 / self.share() - 1.0)
    }

    /// A phase with the recorder and the one without it that came next.
    pub fn add(&mut self, with: Phase, without: Phase) {
        if self.pairs.len() == REMEMBERED {
            self.pairs.remove(0);
        }
        self.pairs.push((with, without));
    }

    /// What it has cost so far, where it was attached for this share of the time.
    #[must_use]
    pub fn spent(&self, share: f64) -> Spent {
        let while_attached = compare(&self.pairs, By::Cpu);
        Spent {
            share,
            overall: while_attached
                .slowdown
                .map(|slowdown| slowdown.scaled(share)),
            predicted: self.predicted.map(|slowdown| slowdown.scaled(share)),
            while_attached,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a recorder with this slow-down on a program whose speed changes from phase to phase.
    fn run(mut cycle: DutyCycle, slowdown: f64, phases: u32) -> DutyCycle {
        for number in 0..phases {
            let with = cycle.with(None);
            let without = cycle.without(with);
            let speed = 1000.0 + f64::from(number % 3);
            let phase = |length: Duration, more: f64| Phase {
                progress: speed * length.as_secs_f64(),
                elapsed: length.as_secs_f64(),
                cpu: 0.3 * (1.0 + more) * length.as_secs_f64(),
            };
            cycle.add(phase(with, slowdown), phase(without, 0.0));
        }
        cycle
    }

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate { value, low, high }
    }

    #[test]
    fn what_is_predicted_decides_until_what_is_measured_is_better_known() {
        let cycle = DutyCycle::new(0.01, Some(estimate(0.08, 0.15, 0.2)));
        assert!((cycle.share() - 0.05).abs() < 1e-9);
        // It costs a third of what was predicted.
        let cycle = run(cycle, 0.05, 20);
        assert!((cycle.share() - 0.2).abs() < 0.01, "{}", cycle.share());
        let spent = cycle.spent(0.2);
        let overall = spent.overall.expect("there is progress");
        assert!((overall.value - 0.01).abs() < 1e-4, "{spent:?}");
        let predicted = spent.predicted.expect("there was one");
        assert!((predicted.value - 0.03).abs() < 1e-9, "{spent:?}");
    }

    #[test]
    fn the_cpu_time_counts_of_a_program_on_many_cpus_that_others_pace() {
        let mut cycle = DutyCycle::new(0.01, Some(estimate(0.1, 0.2, 0.3)));
        let phase = |cpu: f64| Phase {
            progress: 1000.0,
            elapsed: 1.0,
            cpu,
        };
        (0..10).for_each(|number| {
            let speed = 3.0 + f64::from(number % 2) / 100.0;
            cycle.add(phase(speed * 1.2), phase(speed));
        });
        assert!((cycle.share() - 0.05).abs() < 1e-6, "{}", cycle.share());
    }

    #[test]
    fn where_nothing_is_known_it_begins_with_little() {
        let share = DutyCycle::new(0.01, None).share();
        assert!((share - 0.02).abs() < 1e-9);
    }

    #[test]
    fn a_prediction_that_was_too_low_is_mended() {
        let cycle = run(
            DutyCycle::new(0.01, Some(estimate(0.01, 0.03, 0.05))),
            0.4,
            20,
        );
        assert!((cycle.share() - 0.025).abs() < 0.002, "{}", cycle.share());
    }

    #[test]
    fn a_recorder_that_costs_less_than_the_budget_rests_only_to_be_measured() {
        let cycle = DutyCycle::new(0.01, Some(estimate(0.001, 0.002, 0.003)));
        assert!((cycle.share() - MOST).abs() < 1e-9);
        let with = cycle.with(None);
        assert!(cycle.without(with) >= SHORTEST_WITHOUT.mul_f64(0.99));
    }

    #[test]
    fn without_progress_the_prediction_stays() {
        let mut cycle = DutyCycle::new(0.01, Some(estimate(0.1, 0.1, 0.1)));
        let idle = Phase {
            progress: 0.0,
            elapsed: 2.0,
            cpu: 0.1,
        };
        (0..5).for_each(|_| cycle.add(idle, idle));
        assert!((cycle.share() - 0.1).abs() < 1e-9);
        assert!(cycle.spent(0.1).overall.is_none());
    }

    #[test]
    fn a_short_recording_is_not_one_long_phase() {
        let cycle = DutyCycle::new(0.01, Some(estimate(0.1, 0.1, 0.1)));
        let left = Duration::from_secs(5);
        assert!(cycle.with(Some(left)) <= Duration::from_millis(501));
        assert!(!cycle.is_too_small());
        assert!(DutyCycle::new(1e-6, Some(estimate(1.0, 1.0, 1.0))).is_too_small());
    }
}
