//! Times for which the kernel's clock stood still and the cycle counter did not.

use std::collections::VecDeque;

use super::pair::Pair;

/// So many are known. A length with more of them in it keeps the earliest.
const MOST: usize = 64;

/// A time that the machine was suspended, as the cycle counter saw it.
#[derive(Debug, Clone, Copy)]
struct Gap {
    /// What is below comes before it, what is not comes after.
    at: u64,
    /// How far the counter ran on meanwhile.
    cycles: u64,
}

/// The latest times that the machine was suspended, in their order.
#[derive(Debug, Default)]
pub(super) struct Gaps(VecDeque<Gap>);

impl Gaps {
    /// Adds what lies between two pairs. Where it began is not known, but nothing happened in it: if it is more than
    /// half of what lies between them, the middle is within it, wherever it began. A counter that was set back tells
    /// nothing.
    pub(super) fn add(&mut self, before: Pair, after: Pair, ns_per_cycle: f64) {
        let awake = (after.ns.saturating_sub(before.ns) as f64 / ns_per_cycle) as u64;
        let passed = after.cycles.saturating_sub(before.cycles);
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(Gap {
            at: before.cycles.saturating_add(passed / 2),
            cycles: passed.saturating_sub(awake),
        });
    }

    /// A moment, as if the counter had stood still in those after it, too.
    pub(super) fn closed(&self, at: u64) -> u64 {
        let after = self.0.iter().filter(|gap| at < gap.at);
        after.fold(at, |at, gap| at.wrapping_add(gap.cycles))
    }

    /// A length from a moment on, without those within.
    pub(super) fn awake(&self, begin: u64, cycles: u64) -> u64 {
        let is_within = |gap: &&Gap| begin < gap.at && begin.saturating_add(cycles) >= gap.at;
        let within = self.0.iter().filter(is_within);
        within.fold(cycles, |left, gap| left.saturating_sub(gap.cycles))
    }
}
