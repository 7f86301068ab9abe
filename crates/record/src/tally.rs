//! Spans counted: how long they took, and what that time is made of, at and above any percentile.
//!
//! Two grids in one. Counts are on a fine one, for quantiles. The times of the causes are on one
//! that is coarser, an eighth of an octave, because a cell of it holds a sum for each cause. The
//! cell that a percentile lies in is shared out by the fine counts, so a tail holds as many spans
//! as its percentile says. Sums for a threshold that is set beforehand would be smaller, but then the tail
//! would be what was slow by the measure of seconds ago.

use hdrhistogram::Histogram;
use tailscope_trace::{Cause, SpanRow};

/// An hour; what is longer counts as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Cells of an octave, as a power of two.
const CELL_BITS: u32 = 3;

/// Spans, by their weights. Bounded whatever comes: 36 KiB of counts and 40 KiB of sums at most.
#[derive(Debug, Clone)]
pub struct Tally {
    counts: Histogram<u64>,
    cells: Vec<Option<Box<Breakdown>>>,
    rows: u64,
}

/// What the time of some spans is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Breakdown {
    /// Spans.
    pub spans: f64,
    /// Their wall times together, in ns.
    pub wall_ns: f64,
    /// The part of it that went to each cause, in ns, by [`Cause::index`].
    pub cause_ns: [f64; Cause::COUNT],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: Histogram::new(2).expect("two digits are allowed"),
            cells: Vec::new(),
            rows: 0,
        }
    }
}

impl Tally {
    /// Enters a row that counts as so many spans; its sums are weighted by its own weight.
    pub(crate) fn enter(&mut self, row: &SpanRow, spans: u64) {
        let wall_ns = row.wall_ns.clamp(0, LONGEST_NS as i64);
        // It grows up to the longest time, which 64 bits always hold.
        let _ = self.counts.record_n(wall_ns as u64, spans);
        self.cell(cell_of(wall_ns as u64)).enter(row);
        self.rows += 1;
    }

    /// Adds what another one holds.
    pub(crate) fn add(&mut self, other: &Self) {
        self.counts
            .add(&other.counts)
            .expect("a histogram that grows takes what another took");
        for (place, breakdown) in other.cells.iter().enumerate() {
            if let Some(breakdown) = breakdown {
                self.cell(place).add(breakdown, 1.0);
            }
        }
        self.rows += other.rows;
    }

    pub(crate) fn clear(&mut self) {
        self.counts.reset();
        self.cells.clear();
        self.rows = 0;
    }

    fn cell(&mut self, place: usize) -> &mut Breakdown {
        if self.cells.len() <= place {
            self.cells.resize(place + 1, None);
        }
        self.cells[place].get_or_insert_default()
    }

    /// Rows that were entered.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Spans for which they stand.
    #[must_use]
    pub fn spans(&self) -> u64 {
        self.counts.len()
    }

    /// The counts by wall time in ns: cells of 1/128 of their octave, exact below 256 ns.
    #[must_use]
    pub fn counts(&self) -> &Histogram<u64> {
        &self.counts
    }

    /// A quantile of the wall times in ns, to half a percent; `None` without spans.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let value = (!self.counts.is_empty()).then(|| self.counts.value_at_quantile(q))?;
        Some(self.counts.median_equivalent(value))
    }

    /// What all spans are made of.
    #[must_use]
    pub fn whole(&self) -> Breakdown {
        self.sum(0, 1.0)
    }

    /// From which time on, in ns, spans are in the [tail](Self::tail).
    #[must_use]
    pub fn tail_from(&self, q: f64) -> Option<u64> {
        let quantile = self.quantile(q)?;
        Some(self.counts.lowest_equivalent(quantile))
    }

    /// What the spans are made of that took at least as long as the quantile.
    #[must_use]
    pub fn tail(&self, q: f64) -> Breakdown {
        let Some(quantile) = self.quantile(q) else {
            return Breakdown::default();
        };
        let from = self.counts.lowest_equivalent(quantile);
        let cell = cell_of(from);
        let last = edge_of(cell + 1) - 1;
        let above = self.counts.count_between(from, last);
        let all = self.counts.count_between(edge_of(cell), last);
        self.sum(cell, above as f64 / all.max(1) as f64)
    }

    /// The cells from one on, of which the first counts in part.
    fn sum(&self, from: usize, part: f64) -> Breakdown {
        let mut sum = Breakdown::default();
        for (place, breakdown) in self.cells.iter().enumerate().skip(from) {
            if let Some(breakdown) = breakdown {
                sum.add(breakdown, if place == from { part } else { 1.0 });
            }
        }
        sum
    }
}

impl Breakdown {
    fn enter(&mut self, row: &SpanRow) {
        self.spans += row.weight;
        self.wall_ns += row.weight * row.wall_ns as f64;
        for (sum, ns) in self.cause_ns.iter_mut().zip(row.cause_ns) {
            *sum += row.weight * ns as f64;
        }
    }

    fn add(&mut self, other: &Self, part: f64) {
        self.spans += part * other.spans;
        self.wall_ns += part * other.wall_ns;
        for (sum, ns) in self.cause_ns.iter_mut().zip(other.cause_ns) {
            *sum += part * ns;
        }
    }

    /// The part that no cause took, in ns: the spans ran themselves.
    #[must_use]
    pub fn running_ns(&self) -> f64 {
        (self.wall_ns - self.cause_ns.iter().sum::<f64>()).max(0.0)
    }
}

/// The cell of a wall time: its leading bit and the three after it.
fn cell_of(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(CELL_BITS + 1);
    ((shift as usize) << CELL_BITS) + (ns >> shift) as usize
}

/// Where a cell begins, in ns.
fn edge_of(cell: usize) -> u64 {
    let shift = (cell >> CELL_BITS).saturating_sub(1);
    ((cell - (shift << CELL_BITS)) as u64) << shift
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(wall_ns: i64, weight: f64) -> SpanRow {
        let mut row = SpanRow {
            wall_ns,
            weight,
            ..SpanRow::default()
        };
        row.cause_ns[Cause::Lock.index()] = wall_ns / 2;
        row
    }

    fn tally(walls: &[i64]) -> Tally {
        let mut tally = Tally::default();
        walls
            .iter()
            .for_each(|wall| tally.enter(&row(*wall, 1.0), 1));
        tally
    }

    /// The smallest value that at least this part of the values does not exceed.
    fn exact(walls: &[i64], q: f64) -> f64 {
        let mut sorted = walls.to_vec();
        sorted.sort_unstable();
        let rank = (q * sorted.len() as f64).ceil().max(1.0) as usize;
        sorted[rank.min(sorted.len()) - 1] as f64
    }

    proptest! {
        #[test]
        fn quantiles_are_exact_to_half_a_percent(
            walls in proptest::collection::vec(0..LONGEST_NS as i64, 1..2000),
            q in prop_oneof![Just(0.5), Just(0.99), Just(0.999), 0.001..1.0],
        ) {
            let told = tally(&walls).quantile(q).expect("there are spans") as f64;
            let exact = exact(&walls, q);
            prop_assert!((told - exact).abs() <= exact / 200.0 + 1.0, "{} for {}", told, exact);
        }

        #[test]
        fn a_cell_holds_what_lies_between_its_edges(ns in 0..=LONGEST_NS) {
            let cell = cell_of(ns);
            prop_assert!(edge_of(cell) <= ns && ns < edge_of(cell + 1));
            prop_assert!(edge_of(cell + 1) - edge_of(cell) <= edge_of(cell) / 8 + 1);
        }

        #[test]
        fn the_tail_is_what_took_at_least_as_long(
            walls in proptest::collection::vec(1000..50_000_000i64, 1..2000),
        ) {
            let tally = tally(&walls);
            let from = tally.counts.lowest_equivalent(tally.quantile(0.99).expect("spans"));
            let slow: Vec<_> = walls.iter().filter(|wall| **wall >= from as i64).collect();
            let tail = tally.tail(0.99);
            prop_assert!((tail.spans - slow.len() as f64).abs() < 1e-6);
            let wall: i64 = slow.into_iter().sum();
            prop_assert!((tail.wall_ns / wall as f64 - 1.0).abs() < 1.0 / 8.0);
            let whole = tally.whole();
            prop_assert_eq!(whole.wall_ns, walls.iter().sum::<i64>() as f64);
            prop_assert_eq!(whole.spans, walls.len() as f64);
        }

        #[test]
        fn parts_add_up_to_the_whole(
            walls in proptest::collection::vec(0..1_000_000i64, 2..200),
            at in 1..100usize,
        ) {
            let (left, right) = walls.split_at(at.min(walls.len() - 1));
            let (mut sum, whole) = (tally(left), tally(&walls));
            sum.add(&tally(right));
            prop_assert_eq!(&sum.counts, &whole.counts);
            prop_assert_eq!(sum.whole(), whole.whole());
            prop_assert_eq!(sum.rows(), whole.rows());
        }
    }

    #[test]
    fn what_no_cause_took_ran() {
        let tally = tally(&[1000, 3000]);
        assert_eq!(tally.whole().running_ns(), 2000.0);
        assert_eq!(tally.whole().cause_ns[Cause::Lock.index()], 2000.0);
    }

    #[test]
    fn foreign_lengths_count_as_the_nearest_that_can_be() {
        let tally = tally(&[-5, i64::MAX]);
        assert_eq!(tally.spans(), 2);
        let longest = tally.quantile(1.0).expect("there are spans");
        assert!(
            longest.abs_diff(LONGEST_NS) <= LONGEST_NS / 200,
            "{longest}"
        );
        assert_eq!(tally.tail(1.0).spans, 1.0);
    }

    #[test]
    fn nothing_has_no_quantile_and_no_tail() {
        assert_eq!(Tally::default().quantile(0.5), None);
        assert_eq!(Tally::default().tail(0.99), Breakdown::default());
    }
}
