//! Latencies counted in cells of 1/128 of their octave: quantiles are exact to half a percent.

use std::collections::BTreeMap;

/// Cells of an octave, as a power of two.
const CELL_BITS: u32 = 7;
/// A tail needs this number of spans beyond its quantile.
const FEWEST_BEYOND: f64 = 10.0;

/// Counts of latencies. It takes memory only for cells in use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    cells: BTreeMap<u32, u64>,
    count: u64,
}

fn cell_of(ns: u64) -> u32 {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(CELL_BITS + 1);
    (shift << CELL_BITS) + (ns >> shift) as u32
}

fn middle_of(cell: u32) -> u64 {
    let shift = (cell >> CELL_BITS).saturating_sub(1);
    let low = u64::from(cell - (shift << CELL_BITS)) << shift;
    low + (1_u64 << shift) / 2
}

impl Grid {
    pub(crate) fn enter(&mut self, ns: u64) {
        *self.cells.entry(cell_of(ns)).or_default() += 1;
        self.count += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (cell, count) in &other.cells {
            *self.cells.entry(*cell).or_default() += count;
        }
        self.count += other.count;
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The cells in use.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u32, u64)> {
        self.cells.iter().map(|(cell, count)| (*cell, *count))
    }

    /// A quantile in ns; `None`: fewer than ten spans lie beyond it.
    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        enough(self.count as f64, q).then(|| quantile(self.cells(), self.count as f64, q))?
    }
}

/// Whether this number of spans is enough for a quantile.
pub(crate) fn enough(count: f64, q: f64) -> bool {
    // 1 - 0.99 is a little less than 0.01.
    count * (1.0 - q) >= FEWEST_BEYOND - 1e-6
}

/// The quantile of counts by cell, in ns.
pub(crate) fn quantile(cells: impl Iterator<Item = (u32, u64)>, count: f64, q: f64) -> Option<u64> {
    let rank = (q * count - 1e-6).ceil().max(1.0);
    let mut below = 0.0;
    for (cell, count) in cells {
        below += count as f64;
        if below >= rank {
            return Some(middle_of(cell));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_exact_to_half_a_percent(
            spans in proptest::collection::vec(1..1u64 << 45, 20..2000),
        ) {
            let mut grid = Grid::default();
            spans.iter().for_each(|ns| grid.enter(*ns));
            let mut sorted = spans.clone();
            sorted.sort_unstable();
            let exact = sorted[sorted.len().div_ceil(2) - 1] as f64;
            let found = grid.quantile(0.5).expect("enough") as f64;
            prop_assert!((found - exact).abs() <= exact / 200.0 + 1.0, "{} for {}", found, exact);
        }

        #[test]
        fn any_latency_has_a_cell(ns: u64) {
            let middle = middle_of(cell_of(ns));
            prop_assert!(middle.abs_diff(ns) as f64 <= ns as f64 / 200.0 + 1.0);
        }
    }

    #[test]
    fn too_few_spans_have_no_tail() {
        let mut grid = Grid::default();
        (0..999).for_each(|_| grid.enter(1000));
        assert_eq!(grid.quantile(0.99), None);
        grid.enter(1000);
        assert!(grid.quantile(0.99).is_some());
        assert_eq!(grid.quantile(0.999), None);
    }
}
