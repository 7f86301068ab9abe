//! Phases with and without a recorder, compared by the program's own progress in them.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::statistics::{Estimate, blocked, mean};
use crate::target::{Reading, Target};

/// A program that used less of the time than this is paced by others: its speed says nothing, and its
/// CPU time for the same work does.
const SATURATED: f64 = 0.9;
/// The program's own speed may vary by this share between phases before it is worth a word.
const STEADY: f64 = 0.2;
/// Fewer pairs have no interval that is worth anything.
const FEWEST: usize = 3;
/// From this number on, the lowest and the highest fifth are left out.
const MANY: usize = 24;

/// What the program's progress says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// How much more time the same work took with the command: 0.01 is 1 %.
    pub slowdown: Option<Estimate>,
    /// `elapsed` time, or `cpu` time where others pace the program.
    pub by: &'static str,
    /// Pairs of phases.
    pub pairs: usize,
    /// What makes it doubtful, or why there is no figure.
    pub notices: Vec<String>,
}

/// One phase: progress, time and CPU time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    pub(crate) progress: f64,
    pub(crate) elapsed: f64,
    pub(crate) cpu: f64,
}

impl Phase {
    /// How long it was.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.elapsed)
    }
}

/// What grows with a program's work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// A number.
    Number(f64),
    /// How many times its threads have waited. If one of them ends, a phase has no progress.
    Waits,
}

/// Which time counts for the same work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// That which passes.
    Elapsed,
    /// The program's CPU time.
    Cpu,
    /// That which passes where the program is busy all the time, else its CPU time.
    Pace,
}

/// A program's totals when a phase begins or ends.
#[derive(Debug)]
pub struct Moment {
    at: Instant,
    work: Work,
    cpu_ns: u64,
    used: Reading,
}

impl Moment {
    /// Reads them now.
    #[must_use]
    pub fn read(target: &Target, work: Work) -> Self {
        Self {
            at: Instant::now(),
            work,
            cpu_ns: target.cpu_ns(),
            used: target.read(),
        }
    }

    /// The phase from another moment until this one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Phase {
        let progress = match (before.work, self.work) {
            (Work::Number(then), Work::Number(now)) => now - then,
            _ => {
                let used = self.used.since(&before.used);
                if used.ended > 0 {
                    0.0
                } else {
                    used.waits as f64
                }
            }
        };
        Phase {
            progress,
            elapsed: (self.at - before.at).as_secs_f64(),
            cpu: self.cpu_ns.saturating_sub(before.cpu_ns) as f64 / 1e9,
        }
    }
}

/// What pairs of phases (with, without) come to.
pub(crate) fn compare(pairs: &[(Phase, Phase)], by: By) -> Measured {
    let mut notices = Vec::new();
    let offs: Vec<Phase> = pairs.iter().map(|(_, off)| *off).collect();
    let sum = |of: fn(&Phase) -> f64| offs.iter().map(of).sum::<f64>();
    let is_saturated = sum(|off| off.cpu) >= SATURATED * sum(|off| off.elapsed);
    let elapsed = by == By::Elapsed || by == By::Pace && is_saturated;
    let cost = |phase: &Phase| if elapsed { phase.elapsed } else { phase.cpu } / phase.progress;
    let ratios: Vec<f64> = pairs
        .iter()
        .filter(|(on, off)| on.progress > 0.0 && off.progress > 0.0)
        .map(|(on, off)| (cost(on) / cost(off)).ln())
        .filter(|ratio| ratio.is_finite())
        .collect();
    if sum(|off| off.progress) <= 0.0 {
        notices.push("the progress did not grow: predicted, not verified".into());
    } else if ratios.len() < FEWEST {
        notices.push(format!("too few pairs of phases: {}", ratios.len()));
    }
    if by == By::Elapsed && !is_saturated {
        notices.push(
            "the program waits for others: a tracer can stop it unnoticed while it would wait"
                .into(),
        );
    }
    notices.extend(unsteady(&offs, cost));
    let found = match ratios.len() {
        0..FEWEST => None,
        // A neighbour spoils some phases, and the machine's speed drifts.
        MANY.. => blocked(&ratios),
        _ => mean(&ratios),
    };
    Measured {
        slowdown: found.map(|log| Estimate {
            value: log.value.exp_m1(),
            low: log.low.exp_m1(),
            high: log.high.exp_m1(),
        }),
        by: if elapsed { "elapsed" } else { "cpu" },
        pairs: ratios.len(),
        notices,
    }
}

/// A word on a program whose own speed changes.
fn unsteady(offs: &[Phase], cost: impl Fn(&Phase) -> f64) -> Option<String> {
    let costs = offs.iter().filter(|off| off.progress > 0.0).map(cost);
    let (low, high) = costs.fold((f64::MAX, 0f64), |(low, high), x| (low.min(x), high.max(x)));
    let apart = high / low - 1.0;
    (high > 0.0 && apart > STEADY).then(|| {
        format!(
            "the program's own speed varied by {:.0} % between phases without the command: its work \
             changed, or others had the CPU",
            apart * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(slowdown: f64, cpu: f64) -> Vec<(Phase, Phase)> {
        (0..8)
            .map(|i| {
                let speed = 1000.0 + f64::from(i);
                let phase = |progress: f64, cpu: f64| Phase {
                    progress,
                    elapsed: 1.0,
                    cpu,
                };
                // Paced by others, it does the same work in more CPU time.
                let with = match cpu >= SATURATED {
                    true => phase(speed / (1.0 + slowdown), cpu),
                    false => phase(speed, cpu * (1.0 + slowdown)),
                };
                (with, phase(speed, cpu))
            })
            .collect()
    }

    #[test]
    fn a_planted_slowdown_is_found_by_the_time_that_counts() {
        for (cpu, by) in [(0.99, "elapsed"), (0.2, "cpu")] {
            let found = compare(&pairs(0.05, cpu), By::Pace);
            let slowdown = found.slowdown.expect("enough pairs");
            assert!((slowdown.value - 0.05).abs() < 1e-3, "{found:?}");
            assert_eq!(found.by, by);
        }
    }

    #[test]
    fn without_progress_nothing_is_verified() {
        let still = |phase: Phase| Phase {
            progress: 0.0,
            ..phase
        };
        let pairs: Vec<_> = pairs(0.05, 1.0)
            .into_iter()
            .map(|(a, b)| (still(a), still(b)))
            .collect();
        let found = compare(&pairs, By::Pace);
        assert_eq!(found.slowdown, None);
        assert!(
            found.notices[0].contains("predicted, not verified"),
            "{found:?}"
        );
    }

    #[test]
    fn a_program_that_changes_is_named() {
        let mut pairs = pairs(0.05, 1.0);
        pairs[3].1.progress /= 2.0;
        let found = compare(&pairs, By::Pace);
        assert!(
            found.notices.iter().any(|n| n.contains("own speed varied")),
            "{found:?}"
        );
    }
}
