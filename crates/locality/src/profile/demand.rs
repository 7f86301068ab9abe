//! What one round of a program demands of memory, so that it can be replayed elsewhere.
//!
//! A *round* is a visit of the phase, and what a thread does until its next visit. Its lines come in
//! the groups of Accessprof's table ([`super::groups`]). Each group is cut by how often its lines are
//! accessed ([`super::mixture`]).
//!
//! Only accesses after samples count: the access before a sample is one that took long. What is
//! accessed next hardly depends on how long the last access took.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::Profile;
use super::groups::{CLASSES, Fit, ITERATIONS, PhaseScope, SessionScope, Visit, Visits};
use super::mixture::{self, LOWEST, Rate};

/// Variants that differ as samples of this number do.
const VARIANTS: usize = 8;
/// More than these are in no report: six classes of some dozen rates, and 2 GiB of lines.
const MOST_VARIANTS: usize = 64;
const MOST_GROUPS: usize = 1024;
const MOST_LINES: f64 = (1u32 << 25) as f64;
const MOST_THREADS: f64 = 65_536.0;
/// Accesses below which nothing can be said.
const FEWEST: usize = 200;
/// Samples below which the share of waiting is not known.
const FEWEST_WAITS: usize = 100;

/// What a round demands, with variants.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Demands {
    /// As the samples have it.
    pub found: Demand,
    /// As other samples of the same program might have it.
    pub variants: Vec<Demand>,
    /// Accesses that this comes from.
    pub accesses: u64,
}

/// The lines of a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Threads, as many as would share the time equally.
    pub threads: f64,
    /// The share of the time in user space that is in the phase.
    pub in_phase: f64,
    /// The share of the phase's time in user space in which threads wait for memory, and of the
    /// rest's; 1 where too few samples show it.
    pub waiting: [f64; 2],
    /// The lines, those that are used alike together.
    pub groups: Vec<Lines>,
}

/// Lines that are used alike.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    /// Each by one thread, or by several.
    pub session: SessionScope,
    /// How many, of all threads together.
    pub lines: f64,
    /// How the phase uses them, and the rest of the program; `None`: not at all.
    pub uses: [Option<Use>; 2],
}

/// How lines are used.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// The share of the phase's accesses, or of the rest's, that each of these lines has.
    pub accesses: f64,
    /// The share of accesses that write.
    pub updates: f64,
}

impl Demands {
    /// Whether its numbers can be: it may come from a file.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let mut all = std::iter::once(&self.found).chain(&self.variants);
        (2..=MOST_VARIANTS).contains(&self.variants.len()) && all.all(Demand::is_sound)
    }
}

impl Demand {
    fn is_sound(&self) -> bool {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let is_use = |used: &Use| is_share(used.accesses) && is_share(used.updates);
        let is_group = |lines: &Lines| {
            (0.0..=MOST_LINES).contains(&lines.lines) && lines.uses.iter().flatten().all(is_use)
        };
        (1.0..=MOST_THREADS).contains(&self.threads)
            && is_share(self.in_phase)
            && self.waiting.into_iter().all(is_share)
            && self.groups.len() <= MOST_GROUPS
            && self.groups.iter().all(is_group)
    }
}

/// What the samples have of one class of lines.
#[derive(Debug, Clone, Default)]
struct Seen {
    /// Lines, of which some count in part, by their number of samples.
    lines: Vec<(u64, f64)>,
    /// Loads and stores, in the phase and outside.
    reads: [f64; 2],
    writes: [f64; 2],
    /// Visits, in the phase and outside.
    visits: [f64; 2],
}

/// What a round of the program demands; `None` if too few accesses are known, or none in the phase.
#[must_use]
pub fn demands(profile: &Profile, seed: u64) -> Option<Demands> {
    let visits = Visits::of(profile, true);
    let (_, fit) = Fit::start(&visits).iterated(&visits, ITERATIONS, &|_| 1.0);
    let seen = seen(&visits, &fit);
    let of = |place: usize| -> f64 { seen.iter().map(|class| class.visits[place]).sum() };
    let accesses = of(0) + of(1);
    if accesses < FEWEST as f64 || of(0) < 1.0 || of(1) < 1.0 {
        return None;
    }
    let samples = profile.samples.len() as f64;
    let whole = Demand {
        threads: threads(profile),
        waiting: [true, false].map(|in_phase| waiting(profile, in_phase)),
        ..Demand::default()
    };
    let in_phase = profile.samples.iter().filter(|s| s.in_phase).count() as f64 / samples;
    let mut rng = Rng::with_seed(seed);
    let variant = |_| {
        let noise = (in_phase * (1.0 - in_phase) / samples).sqrt();
        let in_phase = (in_phase + noise * normal(&mut rng)).clamp(0.001, 0.999);
        let drawn: Vec<Seen> = seen.iter().map(|class| class.drawn(&mut rng)).collect();
        let lowest = LOWEST * 2f64.powf(2.0 * rng.f64() - 1.0);
        Demand {
            in_phase,
            groups: lines(&drawn, lowest),
            ..whole.clone()
        }
    };
    Some(Demands {
        found: Demand {
            in_phase,
            groups: lines(&seen, LOWEST),
            ..whole.clone()
        },
        variants: (0..VARIANTS).map(variant).collect(),
        accesses: accesses as u64,
    })
}

/// The number of threads that would share the samples as unequally if each had the same.
fn threads(profile: &Profile) -> f64 {
    let mut samples = vec![0.0; profile.threads.len()];
    for sample in &profile.samples {
        samples[usize::from(sample.thread)] += 1.0;
    }
    let all: f64 = samples.iter().sum();
    all * all / samples.iter().map(|n| n * n).sum::<f64>()
}

/// A thread waits where samples come right after an access.
fn waiting(profile: &Profile, in_phase: bool) -> f64 {
    let samples = profile.samples.iter().filter(|s| s.in_phase == in_phase);
    let known: Vec<bool> = samples.filter_map(|sample| sample.from_access).collect();
    match known.len() < FEWEST_WAITS {
        true => 1.0,
        false => known.iter().filter(|is| **is).count() as f64 / known.len() as f64,
    }
}

fn seen(visits: &Visits, fit: &Fit) -> Vec<Seen> {
    let mut seen = vec![Seen::default(); CLASSES.len()];
    for line in visits.lines() {
        // What goes on at the line of the access before the sample is a part of that access.
        let is_next = |visit: &&Visit| visit.is_after && !visit.is_before;
        let after: Vec<_> = line.iter().filter(is_next).collect();
        let count = after.len() as u64;
        let Some(shares) = fit.posterior(line, &|_| 1.0).filter(|_| count > 0) else {
            continue;
        };
        for (class, share) in seen
            .iter_mut()
            .zip(shares)
            .filter(|(_, share)| *share > 1e-6)
        {
            class.lines.push((count, share));
            for visit in &after {
                let place = usize::from(!visit.in_phase);
                class.visits[place] += share;
                class.reads[place] += share * visit.reads;
                class.writes[place] += share * visit.writes;
            }
        }
    }
    for class in &mut seen {
        class.lines.sort_unstable_by_key(|(count, _)| *count);
        class.lines.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            kept.1 += if is_same { next.1 } else { 0.0 };
            is_same
        });
    }
    seen
}

impl Seen {
    /// The share of accesses that write, in the phase or outside. A line that is only written has as
    /// many accesses as stores; otherwise each store comes with a load.
    fn updates(&self, place: usize) -> f64 {
        let (reads, writes) = (self.reads[place], self.writes[place]);
        match reads.max(writes) {
            0.0 => 0.0,
            most => writes / most,
        }
    }

    /// As other samples might have it: each number varies as counts do.
    fn drawn(&self, rng: &mut Rng) -> Self {
        let mut count = |n: f64| (n + n.sqrt() * normal(rng)).max(0.0);
        Self {
            lines: self
                .lines
                .iter()
                .map(|(n, lines)| (*n, count(*lines)))
                .collect(),
            reads: self.reads.map(&mut count),
            writes: self.writes.map(&mut count),
            visits: self.visits.map(&mut count),
        }
    }
}

fn lines(seen: &[Seen], lowest: f64) -> Vec<Lines> {
    let all: Vec<(PhaseScope, SessionScope, &Seen, Vec<Rate>)> = CLASSES
        .iter()
        .zip(seen)
        .map(|((phase, session), seen)| (*phase, *session, seen, mixture::fit(&seen.lines, lowest)))
        .collect();
    // Of a class's accesses, the part in the phase and outside.
    let parts = |phase: PhaseScope, seen: &Seen| match phase {
        PhaseScope::Phase => [1.0, 0.0],
        PhaseScope::Rest => [0.0, 1.0],
        PhaseScope::Global => {
            let all = (seen.visits[0] + seen.visits[1]).max(f64::MIN_POSITIVE);
            seen.visits.map(|visits| visits / all)
        }
    };
    let mut sums = [0.0; 2];
    for (phase, _, seen, rates) in &all {
        let accesses: f64 = rates.iter().map(|rate| rate.lines * rate.samples).sum();
        let parts = parts(*phase, seen);
        sums.iter_mut()
            .zip(parts)
            .for_each(|(sum, part)| *sum += accesses * part);
    }
    let mut groups = Vec::new();
    for (phase, session, seen, rates) in &all {
        let parts = parts(*phase, seen);
        groups.extend(rates.iter().map(|rate| Lines {
            session: *session,
            lines: rate.lines,
            uses: [0, 1].map(|place| {
                let accesses = rate.samples * parts[place] / sums[place];
                (accesses > 0.0 && accesses.is_finite()).then(|| Use {
                    accesses,
                    updates: seen.updates(place),
                })
            }),
        }));
    }
    groups
}

/// A number of the standard normal distribution, nearly: a sum of twelve even ones.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests;
