//! Counts by size on a logarithmic grid: exact to 0.8 % over all positive numbers.

/// Cells in each doubling: the top bits of a number's mantissa.
const MANTISSA_BITS: u32 = 7;
const PER_DOUBLING: usize = 1 << MANTISSA_BITS;
/// From 2^-48 (a count a day at 3 GHz) to 2^48; what is beyond goes into the cells at the ends.
const LOWEST: i64 = -48;
const DOUBLINGS: usize = 96;
const CELLS: usize = DOUBLINGS * PER_DOUBLING;

/// How often numbers of each size came. Zero is counted apart; there are no negative ones.
#[derive(Debug, Clone)]
pub struct Histogram {
    cells: Box<[u64]>,
    zeros: u64,
    count: u64,
    sum: f64,
    squares: f64,
    max: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            cells: vec![0; CELLS].into_boxed_slice(),
            zeros: 0,
            count: 0,
            sum: 0.0,
            squares: 0.0,
            max: 0.0,
        }
    }
}

/// The cell of a number above 0: its exponent and the first bits of its mantissa.
#[inline(always)]
fn cell(value: f64) -> usize {
    let top = (value.to_bits() >> (52 - MANTISSA_BITS)) as i64;
    let first = (1023 + LOWEST) << MANTISSA_BITS;
    (top - first).clamp(0, CELLS as i64 - 1) as usize
}

/// The middle of a cell.
fn middle(cell: usize) -> f64 {
    let first = ((1023 + LOWEST) as u64) << MANTISSA_BITS;
    let low = |cell: usize| f64::from_bits((first + cell as u64) << (52 - MANTISSA_BITS));
    (low(cell) + low(cell + 1)) / 2.0
}

/// Of a coarser grid, for two numbers at once: this many cells, the first of which is zero.
pub(crate) const COARSE_CELLS: usize = 1 + CELLS / FINE_IN_COARSE;
/// Eight coarse cells in each doubling.
const FINE_IN_COARSE: usize = PER_DOUBLING / 8;

/// The coarse cell of a number. What is negative or no number counts as zero.
#[inline(always)]
pub(crate) fn coarse(value: f64) -> usize {
    if value > 0.0 {
        1 + cell(value) / FINE_IN_COARSE
    } else {
        0
    }
}

/// The middle of a coarse cell.
pub(crate) fn coarse_middle(cell: usize) -> f64 {
    let first = |cell: usize| middle(cell * FINE_IN_COARSE);
    let last = |cell: usize| middle(cell * FINE_IN_COARSE + FINE_IN_COARSE - 1);
    cell.checked_sub(1)
        .map_or(0.0, |cell| (first(cell) + last(cell)) / 2.0)
}

impl Histogram {
    /// Counts one. What is negative or no number counts as zero.
    #[inline(always)]
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        if value > 0.0 {
            self.cells[cell(value)] += 1;
            self.sum += value;
            self.squares += value * value;
            self.max = self.max.max(value);
        } else {
            self.zeros += 1;
        }
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> f64 {
        self.max
    }

    /// Their mean; `None` of none.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// Their standard deviation; `None` of none.
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        Some(
            (self.squares / self.count as f64 - mean * mean)
                .max(0.0)
                .sqrt(),
        )
    }

    /// The number at or below which this share of all is, to half a cell (0.4 %); `None` of none.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count);
        let mut below = self.zeros;
        if rank <= below {
            return Some(0.0);
        }
        for (cell, count) in self.cells.iter().enumerate() {
            below += count;
            if rank <= below {
                return Some(middle(cell).min(self.max));
            }
        }
        Some(self.max)
    }

    /// How many are above a number, to a cell.
    #[must_use]
    pub fn above(&self, value: f64) -> u64 {
        if value <= 0.0 {
            return self.count - self.zeros;
        }
        self.cells[(cell(value) + 1).min(CELLS)..].iter().sum()
    }

    /// The cells that are not empty: the middle of each and its count. Zero first.
    #[must_use]
    pub fn cells(&self) -> Vec<(f64, u64)> {
        let zeros = (self.zeros > 0).then_some((0.0, self.zeros));
        let others = self.cells.iter().enumerate();
        let others = others.filter(|(_, count)| **count > 0);
        zeros
            .into_iter()
            .chain(others.map(|(cell, count)| (middle(cell), *count)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_numbers(
            mut numbers in proptest::collection::vec(1e-9f64..1e9, 1..200), share in 0.0f64..=1.0,
        ) {
            let mut histogram = Histogram::default();
            numbers.iter().for_each(|n| histogram.add(*n));
            numbers.sort_by(f64::total_cmp);
            let rank = ((share * numbers.len() as f64).ceil() as usize).clamp(1, numbers.len());
            let exact = numbers[rank - 1];
            let found = histogram.quantile(share).expect("there are some");
            prop_assert!((found / exact - 1.0).abs() < 0.005, "{} {}", found, exact);
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            prop_assert!((histogram.mean().expect("some") / mean - 1.0).abs() < 1e-9);
            prop_assert_eq!(histogram.max(), *numbers.last().expect("some"));
            let counted: u64 = histogram.cells().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(counted, numbers.len() as u64);
        }

        #[test]
        fn any_number_finds_a_cell(bits: u64) {
            let mut histogram = Histogram::default();
            histogram.add(f64::from_bits(bits));
            prop_assert_eq!(histogram.count(), 1);
            let _ = (histogram.quantile(0.5), histogram.above(1.0), histogram.deviation());
        }
    }

    #[test]
    fn zeros_are_apart() {
        let mut histogram = Histogram::default();
        [0.0, 0.0, 0.0, 8.0].iter().for_each(|n| histogram.add(*n));
        assert_eq!(histogram.quantile(0.75), Some(0.0));
        assert_eq!(histogram.quantile(1.0), Some(8.0));
        assert_eq!(
            (
                histogram.above(0.0),
                histogram.above(4.0),
                histogram.above(8.1)
            ),
            (1, 1, 0)
        );
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
