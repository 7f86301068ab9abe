//! The server's quantiles with lending on and off, with intervals by a bootstrap of phases.
//!
//! Requests near each other in time share their fate: a queue, a pause, a neighbour. So whole blocks
//! (an on-phase and the off-phase after it) are drawn again, and never single requests.

use std::collections::BTreeSet;

use fastrand::Rng;
use serde::Serialize;

use crate::grid::{Grid, enough, quantile};

/// Fewer blocks have no interval.
const FEWEST_BLOCKS: usize = 10;
const RESAMPLES: usize = 500;

/// An on-phase and an off-phase, or several of each that lie next to each other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    pub on: Grid,
    pub off: Grid,
}

/// A figure with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// The figure; `None`: too few requests.
    pub value: Option<f64>,
    /// The lower end of the interval; `None`: too few phases.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// What was drawn of one quantile: with lending, without, and the change as a share of the second.
pub(crate) type Trio = [Estimate; 3];

/// The quantile with lending, without it, and the relative change.
fn figures(on: &Grid, off: &Grid, q: f64) -> [Option<f64>; 3] {
    let [on, off] = [on, off].map(|grid| grid.quantile(q).map(|ns| ns as f64));
    [on, off, change(on, off)]
}

fn change(on: Option<f64>, off: Option<f64>) -> Option<f64> {
    on.zip(off).map(|(on, off)| on / off.max(1.0) - 1.0)
}

/// Whether intervals are wanted: they take up to a second of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intervals {
    /// For the final report.
    With,
    /// For figures that are looked at while it goes on.
    Without,
}

/// The estimates of each of these quantiles.
pub(crate) fn estimate(blocks: &[Block], quantiles: &[f64], intervals: Intervals) -> Vec<Trio> {
    let (mut on, mut off) = (Grid::default(), Grid::default());
    for block in blocks {
        on.add(&block.on);
        off.add(&block.off);
    }
    let both = |block: &&Block| block.on.count() > 0 && block.off.count() > 0;
    let blocks_suffice = blocks.iter().filter(both).count() >= FEWEST_BLOCKS;
    let drawn = if blocks_suffice && intervals == Intervals::With {
        resample(blocks, quantiles)
    } else {
        vec![Default::default(); quantiles.len()]
    };
    let all = quantiles.iter().zip(drawn);
    all.map(|(q, drawn)| {
        let values = figures(&on, &off, *q);
        let [on, off, change] = drawn;
        let [a, b, c] = values;
        [interval(a, on), interval(b, off), interval(c, change)]
    })
    .collect()
}

fn interval(value: Option<f64>, mut drawn: Vec<f64>) -> Estimate {
    drawn.sort_by(f64::total_cmp);
    // Where some draws have too few spans, an interval of the others would be too narrow.
    let whole = value.is_some() && drawn.len() >= RESAMPLES * 9 / 10;
    let at = |share: f64| whole.then(|| drawn[((drawn.len() - 1) as f64 * share) as usize]);
    Estimate {
        value,
        low: at(0.025),
        high: at(0.975),
    }
}

/// For each quantile, what came of draws with replacement: with lending, without, the change.
fn resample(blocks: &[Block], quantiles: &[f64]) -> Vec<[Vec<f64>; 3]> {
    let [on, off] = [Side::of(blocks, |b| &b.on), Side::of(blocks, |b| &b.off)];
    let mut random = Rng::with_seed(blocks.len() as u64);
    let mut found: Vec<[Vec<f64>; 3]> = vec![Default::default(); quantiles.len()];
    for _ in 0..RESAMPLES {
        let mut times = vec![0_u64; blocks.len()];
        (0..blocks.len()).for_each(|_| times[random.usize(..blocks.len())] += 1);
        let [on, off] = [&on, &off].map(|side| side.drawn(&times));
        for (q, found) in quantiles.iter().zip(&mut found) {
            let [on, off] = [&on, &off].map(|drawn| drawn.quantile(*q));
            for (values, value) in found.iter_mut().zip([on, off, change(on, off)]) {
                values.extend(value);
            }
        }
    }
    found
}

/// The counts of all blocks of one kind of phase: those of a block by the places of its cells.
struct Side {
    cells: Vec<u32>,
    blocks: Vec<Vec<(usize, u64)>>,
}

struct Drawn<'s> {
    cells: &'s [u32],
    counts: Vec<u64>,
    count: f64,
}

impl Side {
    fn of(blocks: &[Block], grid: impl Fn(&Block) -> &Grid) -> Self {
        let cells: BTreeSet<u32> = blocks
            .iter()
            .flat_map(|block| grid(block).cells().map(|(cell, _)| cell))
            .collect();
        let cells: Vec<u32> = cells.into_iter().collect();
        let place = |cell: u32| cells.binary_search(&cell).unwrap_or_default();
        let of_block = |block: &Block| grid(block).cells().map(|(c, n)| (place(c), n)).collect();
        let blocks = blocks.iter().map(of_block).collect();
        Self { cells, blocks }
    }

    fn drawn(&self, times: &[u64]) -> Drawn<'_> {
        let mut counts = vec![0; self.cells.len()];
        for (block, times) in self.blocks.iter().zip(times).filter(|(_, t)| **t > 0) {
            for (place, count) in block {
                counts[*place] += count * times;
            }
        }
        let count = counts.iter().sum::<u64>() as f64;
        Drawn {
            cells: &self.cells,
            counts,
            count,
        }
    }
}

impl Drawn<'_> {
    fn quantile(&self, q: f64) -> Option<f64> {
        let cells = self.cells.iter().copied().zip(self.counts.iter().copied());
        let found = enough(self.count, q).then(|| quantile(cells, self.count, q));
        found.flatten().map(|ns| ns as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks whose requests share a factor, as those of one moment do; with lending they take
    /// `slower` times as long.
    fn blocks(slower: f64, seed: u64, count: usize) -> Vec<Block> {
        let mut random = Rng::with_seed(seed);
        (0..count)
            .map(|_| {
                let mut block = Block::default();
                for (grid, factor, spans) in
                    [(&mut block.on, slower, 400), (&mut block.off, 1.0, 100)]
                {
                    let shared = 1.0 + 0.3 * random.f64();
                    for _ in 0..spans {
                        let ns = -(1.0 - random.f64()).ln() * 100_000.0 * factor * shared;
                        grid.enter(ns as u64);
                    }
                }
                block
            })
            .collect()
    }

    #[test]
    fn the_interval_covers_the_truth_nearly_as_often_as_it_says() {
        let covered = (0..100)
            .filter(|seed| {
                let found = estimate(&blocks(1.2, seed * 13 + 1, 60), &[0.99], Intervals::With);
                let [_, _, change] = found[0];
                let (low, high) = (change.low.expect("many"), change.high.expect("many"));
                low <= 0.2 && 0.2 <= high
            })
            .count();
        assert!(covered >= 85, "{covered} of 100");
    }

    #[test]
    fn too_little_has_no_figure_or_no_interval() {
        let [on, off, change] = estimate(&blocks(1.0, 1, 5), &[0.99], Intervals::With)[0];
        assert!(on.value.is_some() && on.low.is_none());
        assert!(off.value.is_none() && change.value.is_none());
        assert!(
            estimate(&[], &[0.5], Intervals::With)[0]
                .iter()
                .all(|e| e.value.is_none())
        );
    }
}
