//! Two counters' rates together: how often each pair of them came.

use crate::histogram::{COARSE_CELLS, coarse, coarse_middle};

/// Counts by the sizes of two numbers, each on a logarithmic grid of cells 9 % apart, with zero
/// apart. In memory only as far as pairs came there.
#[derive(Debug)]
pub struct Joint(Box<[u64]>);

impl Joint {
    /// An empty one, without room where there are no two rates.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        let cells = if wanted {
            COARSE_CELLS * COARSE_CELLS
        } else {
            0
        };
        Self(vec![0; cells].into_boxed_slice())
    }

    /// Counts a pair.
    #[inline(always)]
    pub fn add(&mut self, x: f64, y: f64) {
        self.0[coarse(x) * COARSE_CELLS + coarse(y)] += 1;
    }

    /// The cells in which pairs came: the middles of both sides, and how many.
    #[must_use]
    pub fn cells(&self) -> Vec<(f64, f64, u64)> {
        let counts = self.0.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(at, count)| {
                let middle = |cell| coarse_middle(cell);
                (middle(at / COARSE_CELLS), middle(at % COARSE_CELLS), *count)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_pair_is_counted_where_it_belongs(
            pairs in proptest::collection::vec((0.0f64..1e9, 1e-6f64..10.0), 0..100),
        ) {
            let mut joint = Joint::new(true);
            pairs.iter().for_each(|(x, y)| joint.add(*x, *y));
            let cells = joint.cells();
            prop_assert_eq!(cells.iter().map(|cell| cell.2).sum::<u64>(), pairs.len() as u64);
            for (x, y) in pairs {
                let near = |middle: f64, value: f64| (middle - value).abs() <= 0.07 * value;
                prop_assert!(cells.iter().any(|cell| near(cell.0, x) && near(cell.1, y)));
            }
        }
    }

    #[test]
    fn zeros_are_apart() {
        let mut joint = Joint::new(true);
        joint.add(0.0, 8.0);
        joint.add(0.0, 8.0);
        let cells = joint.cells();
        assert_eq!((cells.len(), cells[0].0, cells[0].2), (1, 0.0, 2));
        assert!(Joint::new(false).cells().is_empty());
    }
}
