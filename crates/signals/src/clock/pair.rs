//! Readings of the cycle counter and of the kernel's clock at one moment.

use super::{Cycles, Monotonic};

/// Both clocks at one moment, as nearly as user space can tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) cycles: u64,
    pub(super) ns: u64,
}

impl Pair {
    /// The best of a few tries: the one whose clock call took the fewest cycles.
    pub(super) fn read() -> Self {
        (0..8)
            .map(|_| {
                let before = Cycles::now().0;
                let ns = Monotonic::now().0;
                let after = Cycles::now().0;
                (
                    after - before,
                    Pair {
                        cycles: before + (after - before) / 2,
                        ns,
                    },
                )
            })
            .min_by_key(|(took, _)| *took)
            .map(|(_, pair)| pair)
            .expect("eight tries")
    }

    /// How many ns a cycle took from here to a later one; `None`: it is none.
    pub(super) fn rate_to(self, later: Self) -> Option<f64> {
        let cycles = later.cycles.checked_sub(self.cycles)?;
        let ns = later.ns.checked_sub(self.ns)?;
        (cycles > 0 && ns > 0).then(|| ns as f64 / cycles as f64)
    }

    /// The kernel's clock at another moment, at this rate.
    pub(super) fn at(self, cycles: u64, ns_per_cycle: f64) -> i64 {
        // The moment may be foreign: any number is some time, and none may panic.
        let distance = cycles.wrapping_sub(self.cycles) as i64;
        (self.ns as i64).saturating_add((distance as f64 * ns_per_cycle) as i64)
    }
}
