//! Rates by tag: how fast each counter grew while a tag had each of its values.
//!
//! The tags are read after the counters. The time between two samples belongs to a value only if
//! both samples saw it; where they saw different ones, what lies between belongs to neither, and is
//! counted as changed. Which share of the time a value had is told by the samples that saw it, whatever
//! their neighbours saw: so a value that lasts shorter than a period has its share, too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// So many values have places of their own; more are put together. Preallocated: a table that grew
/// while it is used would stop the observer for milliseconds.
const MOST_VALUES: usize = 1 << 14;

/// What was seen while the tags had one value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<const N: usize> {
    /// Samples that saw it, as the second one of a good pair.
    pub hits: u64,
    /// Good pairs of samples that both saw it.
    pub samples: u64,
    /// The time between them, in cycles.
    pub cycles: u64,
    /// By how much each counter grew in it.
    pub grown: [u64; N],
    /// Sums of the squares of the samples' rates.
    squares: [f64; N],
    /// Sums of the samples' rates.
    sums: [f64; N],
}

impl<const N: usize> Default for Seen<N> {
    fn default() -> Self {
        Self {
            hits: 0,
            samples: 0,
            cycles: 0,
            grown: [0; N],
            squares: [0.0; N],
            sums: [0.0; N],
        }
    }
}

impl<const N: usize> Seen<N> {
    #[inline(always)]
    fn add(&mut self, cycles: u64, grown: &[u64; N], rates: &[f64; N]) {
        self.samples += 1;
        self.cycles += cycles;
        for i in 0..N {
            self.grown[i] += grown[i];
            self.sums[i] += rates[i];
            self.squares[i] += rates[i] * rates[i];
        }
    }

    /// Adds what was seen with other values.
    pub fn join(&mut self, other: &Self) {
        self.hits += other.hits;
        self.samples += other.samples;
        self.cycles += other.cycles;
        for i in 0..N {
            self.grown[i] += other.grown[i];
            self.sums[i] += other.sums[i];
            self.squares[i] += other.squares[i];
        }
    }

    /// The standard deviation of the samples' rates of a counter.
    #[must_use]
    pub fn deviation(&self, counter: usize) -> f64 {
        let n = self.samples.max(1) as f64;
        let mean = self.sums[counter] / n;
        (self.squares[counter] / n - mean * mean).max(0.0).sqrt()
    }
}

/// Spreads by one multiplication: the keys are foreign, but only this machine's own.
#[derive(Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }
    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
    fn write_usize(&mut self, _: usize) {} // the length of the array, always the same
}

/// Rates by the value of the tags.
#[derive(Debug)]
pub struct Tags<const N: usize, const T: usize> {
    values: HashMap<[u64; T], Seen<N>, BuildHasherDefault<Spread>>,
    others: Seen<N>,
    changed: u64,
    changed_cycles: u64,
}

impl<const N: usize, const T: usize> Default for Tags<N, T> {
    fn default() -> Self {
        let room = if T == 0 { 0 } else { MOST_VALUES };
        Self {
            values: HashMap::with_capacity_and_hasher(room, BuildHasherDefault::default()),
            others: Seen::default(),
            changed: 0,
            changed_cycles: 0,
        }
    }
}

impl<const N: usize, const T: usize> Tags<N, T> {
    /// A good pair of samples, with the tags that each saw.
    #[inline(always)]
    pub fn add(&mut self, tags: [&[u64; T]; 2], cycles: u64, grown: &[u64; N], rates: &[f64; N]) {
        let full = self.values.len() >= MOST_VALUES;
        let seen = match self.values.get_mut(tags[1]) {
            Some(seen) => seen,
            None if full => &mut self.others,
            None => self.values.entry(*tags[1]).or_default(),
        };
        seen.hits += 1;
        if tags[0] == tags[1] {
            seen.add(cycles, grown, rates);
        } else {
            self.changed += 1;
            self.changed_cycles += cycles;
        }
    }

    /// The values by time, longest first, and those that found no place together.
    #[must_use]
    pub fn by_time(&self) -> (Vec<([u64; T], Seen<N>)>, Seen<N>) {
        let mut all: Vec<_> = self.values.iter().map(|(k, v)| (*k, *v)).collect();
        all.sort_by(|a, b| b.1.hits.cmp(&a.1.hits).then(a.0.cmp(&b.0)));
        (all, self.others)
    }

    /// By how much each counter grew in the pairs of samples that both saw the same value.
    #[must_use]
    pub fn grown(&self) -> [u64; N] {
        let all = self.values.values().chain([&self.others]);
        all.fold([0; N], |sum, seen| {
            std::array::from_fn(|i| sum[i] + seen.grown[i])
        })
    }

    /// Pairs of samples between which the tags changed, and the cycles between them.
    #[must_use]
    pub fn changed(&self) -> (u64, u64) {
        (self.changed, self.changed_cycles)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_gets_lost(
            pairs in proptest::collection::vec((0u64..5, 0u64..5, 1u64..1000, 0u64..50), 0..200),
        ) {
            let mut tags: Tags<1, 1> = Tags::default();
            for (before, after, cycles, grown) in &pairs {
                let rate = *grown as f64 / *cycles as f64;
                tags.add([&[*before], &[*after]], *cycles, &[*grown], &[rate]);
            }
            let (all, others) = tags.by_time();
            let kept: u64 = all.iter().map(|(_, seen)| seen.samples).sum();
            prop_assert_eq!(kept + tags.changed().0, pairs.len() as u64);
            prop_assert_eq!(others.samples, 0);
            let cycles: u64 = all.iter().map(|(_, seen)| seen.cycles).sum();
            prop_assert_eq!(
                cycles + tags.changed().1,
                pairs.iter().map(|pair| pair.2).sum::<u64>()
            );
            let same = pairs.iter().filter(|(before, after, ..)| before == after);
            prop_assert_eq!(tags.grown(), [same.map(|pair| pair.3).sum::<u64>()]);
            prop_assert!(all.is_sorted_by(|a, b| a.1.hits >= b.1.hits));
            let hits: u64 = all.iter().map(|(_, seen)| seen.hits).sum();
            prop_assert_eq!(hits, pairs.len() as u64);
        }
    }

    #[test]
    fn a_million_values_stay_within_their_room() {
        let mut tags: Tags<1, 1> = Tags::default();
        let room = tags.values.capacity();
        for value in 0..1_000_000u64 {
            tags.add([&[value * 64], &[value * 64]], 10, &[1], &[0.1]);
        }
        let (all, others) = tags.by_time();
        assert_eq!(all.len(), MOST_VALUES);
        assert_eq!(others.samples, 1_000_000 - MOST_VALUES as u64);
        assert_eq!(tags.values.capacity(), room);
    }
}
