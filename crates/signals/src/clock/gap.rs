//! Time for which the kernel's clock stood still and the cycle counter did not.

use super::pairs::Pair;

/// The last time that the machine was suspended, as the cycle counter saw it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Gap {
    /// What is below comes before it, what is not comes after.
    at: u64,
    /// How far the counter ran on meanwhile; 0: no gap.
    cycles: u64,
}

impl Gap {
    /// Between two pairs around it. Where it began is not known, but nothing happened in it: if it is more than half
    /// of what lies between them, the middle is within it, wherever it began. A counter that was set back tells
    /// nothing.
    pub(super) fn between(before: Pair, after: Pair, ns_per_cycle: f64) -> Self {
        let awake = (after.ns.saturating_sub(before.ns) as f64 / ns_per_cycle) as u64;
        let passed = after.cycles.saturating_sub(before.cycles);
        Self {
            at: before.cycles.saturating_add(passed / 2),
            cycles: passed.saturating_sub(awake),
        }
    }

    /// A moment from before it, as if the counter had stood still meanwhile, too.
    pub(super) fn closed(self, at: u64) -> u64 {
        if at < self.at {
            at.wrapping_add(self.cycles)
        } else {
            at
        }
    }

    /// A length from a moment on, without the gap.
    pub(super) fn awake(self, begin: u64, cycles: u64) -> u64 {
        let is_within = begin < self.at && begin.saturating_add(cycles) >= self.at;
        if is_within {
            cycles.saturating_sub(self.cycles)
        } else {
            cycles
        }
    }
}
