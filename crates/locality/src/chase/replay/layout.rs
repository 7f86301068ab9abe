//! A path with the lines, accesses and writes of a demand.

use crate::chase::plan::{Group, Plan, SLOTS, Scope, Spread, Use};
use crate::profile::demand::{self, Demand, Lines};
use crate::profile::groups::SessionScope;

/// A path has about this number of elements at most: 4 MB. Its lines can need more.
const MOST_ELEMENTS: f64 = (1 << 20) as f64;
/// A loop takes this time at most, in ns: caches fill in two of them.
const LONGEST_NS: f64 = 1e8;
/// A loop is long enough for an access to each line, but for those with this share of the accesses.
const FEW: f64 = 0.05;

/// What a path is laid out for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// ns of an access to a line that is at hand.
    pub(super) hit_ns: f64,
    /// ns of a round.
    pub(super) round_ns: f64,
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
            let mut uses = uses.map(|(used, all)| used.map_or(0.0, |used| rate(used, all)));
            [0, 1].map(|_| uses.next().unwrap_or_default())
        };
        let lowest = low_rate(demand.groups.iter().flat_map(|lines| {
            of_line(lines).map(|rate| (rate, rate * lines.lines / share(lines)))
        }));
        let most = (MOST_ELEMENTS / (accesses[0] + accesses[1])).min(LONGEST_NS / self.round_ns);
        let visits = (1.0 / lowest).round().clamp(1.0, most.max(1.0));
        let mut groups = Vec::new();
        let mut left = [0.0; 2];
        for lines in &demand.groups {
            let counts = of_line(lines).map(|rate| rate * visits);
            let over = push(&mut groups, lines, lines.lines / share(lines), counts);
            left.iter_mut()
                .zip(over)
                .for_each(|(left, over)| *left += over);
        }
        fill(&mut groups);
        // A loop has no visit without an element.
        let visits = (visits as usize).min(shortest(&groups));
        let compute_ns = [0, 1].map(|p| left[p] / visits as f64 * self.hit_ns + other_ns[p]);
        let largest = groups.iter().flat_map(|group: &Group| &group.uses);
        let largest = largest.map(|used| used.accesses).fold(1.0, f64::max);
        // Counts become relative to the largest, of what fits.
        for group in &mut groups {
            let fits = (SLOTS / group.uses.len()) as f64;
            let scale = largest / largest.min(fits);
            let uses = group.uses.iter_mut();
            uses.for_each(|used| used.accesses *= scale);
        }
        Plan {
            phases: 2,
            groups,
            spread: Spread::Even(largest as usize),
            visits,
            compute_ns: compute_ns.to_vec(),
        }
    }
}

/// Accesses in a loop of the phase that has fewer.
fn shortest(groups: &[Group]) -> usize {
    let of = |phase| {
        let of = |group: &Group| {
            let used = group.uses.iter().filter(|used| used.phase == phase);
            group.lines as f64 * used.map(|used| used.accesses).sum::<f64>()
        };
        groups.iter().map(of).sum::<f64>() as usize
    };
    of(0).min(of(1)).max(1)
}

/// A phase without any line gets one, which is always at hand.
fn fill(groups: &mut Vec<Group>) {
    for phase in 0..2 {
        let mut uses = groups.iter().flat_map(|group| &group.uses);
        if uses.all(|used| used.phase != phase) {
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

/// Adds a number of lines with these counts of accesses in a loop. Returns the accesses of all lines
/// that do not fit, by phase: the processor has such hot lines at hand, so that they are time and
/// nothing else.
fn push(groups: &mut Vec<Group>, lines: &Lines, number: f64, counts: [f64; 2]) -> [f64; 2] {
    let scope = match lines.session {
        SessionScope::Local => Scope::Session,
        SessionScope::Global => Scope::Global,
    };
    // Of lines with less than one access in a loop, fewer have one each.
    let thin = counts[0].max(counts[1]).min(1.0);
    let whole = (number * thin).round() as usize;
    if whole == 0 {
        return counts.map(|count| count * number);
    }
    let counts = counts.map(|count| count / thin);
    let used = counts.iter().filter(|count| **count > 0.0).count().max(1);
    let fits = (SLOTS / used) as f64;
    for (number, counts) in alike(whole, counts.map(|count| count.min(fits))) {
        let uses = counts.iter().zip(&lines.uses).enumerate();
        let uses = uses.filter_map(|(phase, (count, used))| {
            (*count > 0.0).then_some(Use {
                phase,
                updates: (*used)?.updates,
                accesses: *count,
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
    counts.map(|count| (count - fits).max(0.0) * whole as f64)
}

/// Lines with whole counts, whose sums are those of as many lines with these counts, of which the
/// larger one is at least 1.
fn alike(number: usize, counts: [f64; 2]) -> [(usize, [f64; 2]); 2] {
    let part = |share: f64| (share * number as f64).round() as usize;
    let larger = usize::from(counts[1] > counts[0]);
    let lesser = counts[1 - larger];
    let of = |large: f64, less: f64| match larger {
        0 => [large, less],
        _ => [less, large],
    };
    if lesser == 0.0 {
        let upper = part(counts[larger].fract());
        let floor = counts[larger].floor();
        return [
            (number - upper, of(floor, 0.0)),
            (upper, of(floor + 1.0, 0.0)),
        ];
    }
    let large = counts[larger].round();
    let (floor, upper) = (lesser.floor(), part(lesser.fract()));
    [
        (number - upper, of(large, floor)),
        (upper, of(large, floor + 1.0)),
    ]
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
