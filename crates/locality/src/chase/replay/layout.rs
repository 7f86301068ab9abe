//! A path with the lines, accesses and writes of a demand.

use crate::chase::plan::{Group, Plan, SLOTS, Scope, Spread, Use};
use crate::profile::demand::{self, Demand, Lines};
use crate::profile::groups::SessionScope;

/// A path has about this number of elements at most: 4 MB. Its lines can need more.
const MOST_ELEMENTS: f64 = (1 << 20) as f64;
/// A loop is long enough for an access to each line, but for those with this share of the accesses.
const FEW: f64 = 0.05;

/// What a path is laid out for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// ns of an access to a line that is at hand.
    pub(super) hit_ns: f64,
}

impl Layout {
    /// Visits with these numbers of accesses. Phase 0 is the phase, and phase 1 the rest.
    pub(super) fn plan(self, demand: &Demand, accesses: [f64; 2], other_ns: [f64; 2]) -> Plan {
        // A visit accesses the lines of its own thread only, and these as much more often.
        let share = |lines: &Lines| match lines.session {
            SessionScope::Local => demand.threads,
            SessionScope::Global => 1.0,
        };
        let of_line = |lines: &Lines| {
            let uses = lines.uses.iter().zip(accesses);
            let rate = |used: demand::Use, all: f64| used.accesses * all * share(lines);
            let uses = uses.map(|(used, all)| used.map_or(0.0, |used| rate(used, all)));
            uses.collect::<Vec<f64>>()
        };
        let lowest = low_rate(demand.groups.iter().flat_map(|lines| {
            let rates = of_line(lines).into_iter();
            rates.map(|rate| (rate, rate * lines.lines / share(lines)))
        }));
        let most = (MOST_ELEMENTS / (accesses[0] + accesses[1])).max(1.0);
        let visits = (1.0 / lowest).round().clamp(1.0, most);
        let mut groups = Vec::new();
        let mut left = [0.0; 2];
        for lines in &demand.groups {
            let counts = of_line(lines).into_iter().map(|rate| rate * visits);
            let counts: Vec<f64> = counts.collect();
            for (place, over) in Self::push(&mut groups, lines, share(lines), &counts)
                .into_iter()
                .enumerate()
            {
                left[place] += over;
            }
        }
        self.fill(&mut groups);
        let compute_ns = [0, 1].map(|p| left[p] / visits * self.hit_ns + other_ns[p]);
        let largest = groups.iter().flat_map(|group: &Group| &group.uses);
        let largest = largest.map(|used| used.accesses).fold(1.0, f64::max);
        // Counts become relative to the largest, of what fits.
        for group in &mut groups {
            let fits = (SLOTS / group.uses.len()) as f64;
            let scale = largest / largest.min(fits);
            group
                .uses
                .iter_mut()
                .for_each(|used| used.accesses *= scale);
        }
        Plan {
            phases: 2,
            groups,
            spread: Spread::Even(largest as usize),
            visits: visits as usize,
            compute_ns: compute_ns.to_vec(),
        }
    }

    /// A phase without any line gets one, which is always at hand.
    fn fill(self, groups: &mut Vec<Group>) {
        for phase in 0..2 {
            let is_empty = groups
                .iter()
                .flat_map(|g| &g.uses)
                .all(|u| u.phase != phase);
            if is_empty {
                groups.push(Group {
                    scope: Scope::Global,
                    lines: 1,
                    uses: vec![Use {
                        phase,
                        updates: 0.0,
                        accesses: 1.0,
                    }],
                });
            }
        }
    }

    /// Adds lines with these counts of accesses in a loop, in two groups where a count is between two
    /// whole ones. Returns the accesses of all lines that do not fit, by phase: the processor has
    /// such hot lines at hand, so that they are time and nothing else.
    fn push(groups: &mut Vec<Group>, lines: &Lines, share: f64, counts: &[f64]) -> [f64; 2] {
        let scope = match lines.session {
            SessionScope::Local => Scope::Session,
            SessionScope::Global => Scope::Global,
        };
        // Of lines with less than one access in a loop, fewer have one each.
        let most = counts.iter().copied().fold(0.0, f64::max);
        let thin = most.min(1.0);
        let number = (lines.lines / share * thin).round() as usize;
        if number == 0 {
            return [0.0; 2];
        }
        let counts: Vec<f64> = counts.iter().map(|count| count / thin).collect();
        let used = counts.iter().filter(|count| **count > 0.0).count().max(1);
        let fits = (SLOTS / used) as f64;
        let over = [0, 1].map(|place| (counts[place] - fits).max(0.0) * number as f64);
        let upper = ((most / thin).clamp(1.0, fits).fract() * number as f64).round() as usize;
        // Where a count is between two whole ones, some lines have the upper one.
        for (number, up) in [(number - upper, 0.0), (upper, 1.0)] {
            let uses = counts.iter().zip(&lines.uses).enumerate();
            let uses = uses.filter_map(|(phase, (count, used))| {
                Some(Use {
                    phase,
                    updates: (*used)?.updates,
                    accesses: (count.floor() + up).clamp(1.0, fits),
                })
            });
            if number > 0 {
                groups.push(Group {
                    scope,
                    lines: number,
                    uses: uses.collect(),
                });
            }
        }
        over
    }
}

/// The rate below which lines have only [`FEW`] of the accesses; infinite without accesses.
fn low_rate(rates: impl Iterator<Item = (f64, f64)>) -> f64 {
    let mut rates: Vec<(f64, f64)> = rates.filter(|(rate, _)| *rate > 0.0).collect();
    rates.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let mut left = FEW * rates.iter().map(|(_, accesses)| accesses).sum::<f64>();
    let is_enough = |(_, accesses): &&(f64, f64)| {
        left -= accesses;
        left < 0.0
    };
    let found = rates.iter().find(is_enough);
    found.map_or(f64::INFINITY, |(rate, _)| *rate)
}

#[cfg(test)]
mod tests;
