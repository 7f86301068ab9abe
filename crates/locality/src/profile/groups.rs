//! Which lines are local to a phase or to a session, and how often each group of lines is written.
//!
//! Goal: Accessprof's table, with intervals. Rejected: Accessprof's rule, by which a line is local
//! unless samples show that it is not. It calls every line local that one sample touched. Chosen: a
//! mixture of six classes, fitted by expectation maximization. Lines with many samples show how
//! common each class is, and with which probability each thread and phase touches a global line. A line with
//! few samples then belongs to each class with a probability. All sums use these probabilities.
//!
//! Assumptions: all global lines are touched by the threads in the same proportions, and lines with
//! few samples are like those with many.

use serde::{Deserialize, Serialize};

use super::interval::{Share, draws};
use super::{Profile, Thread};

/// Where in the loop a group of lines is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseScope {
    /// Only in the phase.
    Phase,
    /// Only outside of the phase.
    Rest,
    /// In both.
    Global,
}

/// By which sessions a group of lines is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionScope {
    /// Each line by one session.
    Local,
    /// Each line by several sessions.
    Global,
}

/// A group of lines.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Group {
    /// In which phases.
    pub phase: PhaseScope,
    /// By which sessions.
    pub session: SessionScope,
    /// Share of the lines that were seen.
    pub lines: Share,
    /// Share of CPU time near accesses.
    pub time: Share,
    /// Stores among loads and stores; `None` if there were none.
    pub updates: Option<Share>,
}

pub(super) const CLASSES: [(PhaseScope, SessionScope); 6] = [
    (PhaseScope::Phase, SessionScope::Local),
    (PhaseScope::Phase, SessionScope::Global),
    (PhaseScope::Rest, SessionScope::Local),
    (PhaseScope::Rest, SessionScope::Global),
    (PhaseScope::Global, SessionScope::Local),
    (PhaseScope::Global, SessionScope::Global),
];
pub(super) type ByClass = [f64; CLASSES.len()];
/// Iterations from scratch. The classes hardly change after half of them.
pub(super) const ITERATIONS: usize = 40;
/// Iterations of a draw, from the fit of all samples.
const MORE_ITERATIONS: usize = 5;
/// A probability below this counts as this, so that no class is lost for good.
const LEAST: f64 = 1e-9;

/// What one sample did at one line, in one phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct Visit {
    line: u32,
    thread: Thread,
    pub(super) in_phase: bool,
    sample: u32,
    weight: f64,
    pub(super) reads: f64,
    pub(super) writes: f64,
    /// It has an access after the sample.
    pub(super) is_after: bool,
    /// It has the access before the sample.
    pub(super) is_before: bool,
}

/// The visits of a profile, by line.
#[derive(Debug)]
pub(super) struct Visits {
    all: Vec<Visit>,
    /// Where each line's visits begin, and the end.
    starts: Vec<usize>,
    threads: usize,
    has_phase: bool,
}

impl Visits {
    pub(super) fn of(profile: &Profile, has_phase: bool) -> Self {
        let mut all: Vec<Visit> = Vec::with_capacity(profile.touches.len());
        let is_after = profile.is_after_by_line();
        for touch in &profile.touches {
            let counts = !touch.is_before || !is_after[touch.line as usize];
            let counted = f64::from(u8::from(counts));
            let sample = &profile.samples[touch.sample as usize];
            all.push(Visit {
                line: touch.line,
                thread: sample.thread,
                in_phase: touch.in_phase && has_phase,
                sample: touch.sample,
                weight: profile.weight(touch),
                reads: counted * touch.reads() as f64,
                writes: counted * touch.writes() as f64,
                is_after: !touch.is_before,
                is_before: touch.is_before,
            });
        }
        all.sort_unstable_by_key(|v| (v.line, v.thread, v.in_phase, v.sample));
        all.dedup_by(|next, kept| {
            let key = |v: &Visit| (v.line, v.thread, v.in_phase, v.sample);
            let is_same = key(next) == key(kept);
            if is_same {
                kept.weight += next.weight;
                kept.reads += next.reads;
                kept.writes += next.writes;
                kept.is_after |= next.is_after;
                kept.is_before |= next.is_before;
            }
            is_same
        });
        let mut starts = vec![0];
        for (place, pair) in all.windows(2).enumerate() {
            if pair[0].line != pair[1].line {
                starts.push(place + 1);
            }
        }
        if !all.is_empty() {
            starts.push(all.len());
        }
        Self {
            all,
            starts,
            threads: profile.threads.len(),
            has_phase,
        }
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &[Visit]> {
        self.starts
            .windows(2)
            .map(|ends| &self.all[ends[0]..ends[1]])
    }
}

/// How common each class is, and who touches lines of each.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    classes: ByClass,
    /// By thread: the probability that a session-local line is this one's.
    owners: Vec<f64>,
    /// By thread: the share of the visits to session-global lines.
    visitors: Vec<f64>,
    /// The phase's share of the visits to phase-global lines.
    in_phase: f64,
}

/// What is summed over lines.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    lines: ByClass,
    time: ByClass,
    reads: ByClass,
    writes: ByClass,
}

impl Fit {
    pub(super) fn start(visits: &Visits) -> Self {
        let even = 1.0 / visits.threads.max(1) as f64;
        let in_phase = visits.all.iter().filter(|v| v.in_phase).count();
        let is_possible =
            |(phase, _): (PhaseScope, SessionScope)| visits.has_phase || phase == PhaseScope::Rest;
        let possible = CLASSES.iter().filter(|class| is_possible(**class)).count();
        Self {
            classes: CLASSES.map(|class| match is_possible(class) {
                true => 1.0 / possible as f64,
                false => 0.0,
            }),
            owners: vec![even; visits.threads],
            visitors: vec![even; visits.threads],
            in_phase: (in_phase as f64 / visits.all.len().max(1) as f64).clamp(0.01, 0.99),
        }
    }

    /// The probability of each class for a line, from its visits; `None` if none was drawn.
    pub(super) fn posterior(&self, line: &[Visit], count: &impl Fn(u32) -> f64) -> Option<ByClass> {
        let (mut total, mut phase) = (0.0, 0.0);
        let mut owner = None;
        let mut has_one_owner = true;
        let mut by_visitors = 0.0;
        for visit in line {
            let n = count(visit.sample);
            if n == 0.0 {
                continue;
            }
            total += n;
            phase += n * f64::from(u8::from(visit.in_phase));
            has_one_owner &= *owner.get_or_insert(visit.thread) == visit.thread;
            by_visitors += n * self.visitors[usize::from(visit.thread)].max(LEAST).ln();
        }
        let owner = owner?;
        let of_owner = match has_one_owner {
            true => self.owners[usize::from(owner)].max(LEAST).ln(),
            false => f64::NEG_INFINITY,
        };
        let rest = total - phase;
        let in_both = phase * self.in_phase.ln() + rest * (1.0 - self.in_phase).ln();
        let logs: ByClass = std::array::from_fn(|class| {
            let (scope, session) = CLASSES[class];
            let by_phase = match scope {
                PhaseScope::Phase if rest == 0.0 => 0.0,
                PhaseScope::Rest if phase == 0.0 => 0.0,
                PhaseScope::Global => in_both,
                _ => f64::NEG_INFINITY,
            };
            let by_session = match session {
                SessionScope::Local => of_owner,
                SessionScope::Global => by_visitors,
            };
            self.classes[class].ln() + by_phase + by_session
        });
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let shares = logs.map(|log| (log - most).exp());
        let sum: f64 = shares.iter().sum();
        sum.is_finite().then(|| shares.map(|share| share / sum))
    }

    /// One iteration: sums over all lines under this fit, and the next fit.
    fn iterate(&self, visits: &Visits, count: &impl Fn(u32) -> f64) -> (Sums, Self) {
        let mut sums = Sums::default();
        let mut owners = vec![0.0; visits.threads];
        let mut visitors = vec![0.0; visits.threads];
        let mut global = [0.0; 2];
        for line in visits.lines() {
            let Some(shares) = self.posterior(line, count) else {
                continue;
            };
            let of = |scope: SessionScope| -> f64 {
                let all = CLASSES.iter().zip(&shares);
                all.filter(|((_, s), _)| *s == scope).map(|(_, p)| p).sum()
            };
            let is_local = of(SessionScope::Local);
            let is_phase_global = shares[4] + shares[5];
            let (mut time, mut reads, mut writes) = (0.0, 0.0, 0.0);
            let mut owner = None;
            for visit in line {
                let n = count(visit.sample);
                if n > 0.0 {
                    time += n * visit.weight;
                    reads += n * visit.reads;
                    writes += n * visit.writes;
                    owner = Some(visit.thread);
                    visitors[usize::from(visit.thread)] += n * (1.0 - is_local);
                    global[usize::from(visit.in_phase)] += n * is_phase_global;
                }
            }
            if let Some(owner) = owner {
                owners[usize::from(owner)] += is_local;
            }
            for (class, share) in shares.iter().enumerate() {
                sums.lines[class] += share;
                sums.time[class] += share * time;
                sums.reads[class] += share * reads;
                sums.writes[class] += share * writes;
            }
        }
        let in_phase = global[1] / (global[0] + global[1]);
        let next = Self {
            classes: shares_of(sums.lines.to_vec())
                .try_into()
                .unwrap_or(self.classes),
            owners: shares_of(owners),
            visitors: shares_of(visitors),
            in_phase: match in_phase.is_finite() {
                true => in_phase.clamp(LEAST, 1.0 - LEAST),
                false => self.in_phase,
            },
        };
        (sums, next)
    }

    pub(super) fn iterated(
        mut self,
        visits: &Visits,
        times: usize,
        count: &impl Fn(u32) -> f64,
    ) -> (Sums, Self) {
        let mut sums = Sums::default();
        for _ in 0..times {
            (sums, self) = self.iterate(visits, count);
        }
        (sums, self)
    }
}

/// Each part of the sum; all zero if the sum is.
fn shares_of(mut parts: Vec<f64>) -> Vec<f64> {
    let sum: f64 = parts.iter().sum();
    if sum > 0.0 {
        parts.iter_mut().for_each(|part| *part /= sum);
    }
    parts
}

/// The table: only rest-local groups without a phase.
#[must_use]
pub fn groups(profile: &Profile, has_phase: bool, seed: u64) -> Vec<Group> {
    let visits = Visits::of(profile, has_phase);
    let (sums, fit) = Fit::start(&visits).iterated(&visits, ITERATIONS, &|_| 1.0);
    let drawn: Vec<Sums> = draws(profile.samples.len(), seed)
        .iter()
        .map(|counts| {
            let count = |sample: u32| f64::from(counts[sample as usize]);
            fit.clone().iterated(&visits, MORE_ITERATIONS, &count).0
        })
        .collect();
    let share = |figure: &dyn Fn(&Sums) -> f64| {
        let all: Vec<f64> = drawn.iter().map(figure).collect();
        Share::of(figure(&sums), &all)
    };
    let part = |parts: &ByClass, class: usize| parts[class] / parts.iter().sum::<f64>();
    let possible = CLASSES.iter().enumerate().filter(|(_, (phase, _))| {
        !visits.all.is_empty() && (has_phase || *phase == PhaseScope::Rest)
    });
    possible
        .map(|(class, (phase, session))| {
            let accesses = sums.reads[class] + sums.writes[class];
            Group {
                phase: *phase,
                session: *session,
                lines: share(&|sums| part(&sums.lines, class)),
                time: share(&|sums| part(&sums.time, class)),
                updates: (accesses >= 1.0).then(|| {
                    share(&|sums| sums.writes[class] / (sums.reads[class] + sums.writes[class]))
                }),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
