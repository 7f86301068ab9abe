//! Which counters' lines are fetched before the reading.
//!
//! A line that the application has written since the last sample comes from its cache. That takes a
//! hundred cycles and more, of which both readings of the clock would disagree by some: the samples that
//! saw a write would be dropped rather than others. So the line is fetched first.
//!
//! An application that writes without a rest takes it back before the reading. Then every sample waits
//! for the line twice, and takes it from the application twice; without the fetch every reading waits for
//! it once, and they last equally long as well. That it was taken back is seen by the value: another one
//! was read than was fetched.

use crate::signal::Read;

/// So many fetches in vain, one after the other, are no chance: where every second is, one series in 256.
const ENOUGH: u32 = 8;
/// From then on it is tried after as many samples as it has been in vain for, but after so many at most.
const LONGEST: u32 = 256;

/// Of each counter, for how many samples in a row the fetch was in vain, or was left out for that.
#[derive(Debug, Clone, Copy)]
pub struct Prefetch<const N: usize>([u32; N]);

impl<const N: usize> Default for Prefetch<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> Prefetch<N> {
    #[inline(always)]
    fn is_due(&self, counter: usize) -> bool {
        let vain = self.0[counter];
        vain < ENOUGH || vain.is_power_of_two() || vain.is_multiple_of(LONGEST)
    }

    /// Fetches the lines that are due; the values that came with them.
    #[inline(always)]
    pub fn fetch<R: Read>(&self, counters: &[R; N]) -> [Option<u64>; N] {
        std::array::from_fn(|i| {
            if self.is_due(i) {
                counters[i].fetch()
            } else {
                None
            }
        })
    }

    /// Learns from what was fetched, and from what was read thereafter.
    #[inline(always)]
    pub fn learn(&mut self, fetched: [Option<u64>; N], values: &[u64; N]) {
        for i in 0..N {
            let was_vain = fetched[i].is_some_and(|value| value != values[i]);
            self.0[i] = if was_vain || !self.is_due(i) {
                self.0[i].wrapping_add(1)
            } else {
                0
            };
        }
    }

    /// Whether the application takes every line back before it is read.
    #[inline(always)]
    #[must_use]
    pub fn is_vain(&self) -> bool {
        self.0.iter().all(|vain| *vain >= ENOUGH)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tailscope_signals::clock::After;

    use super::*;

    /// A counter that somebody else counts on: between fetch and reading, if he does not rest.
    #[derive(Default)]
    struct Written {
        value: Cell<u64>,
        rests: Cell<bool>,
        fetched: Cell<u32>,
    }

    impl Read for Written {
        fn read(&self) -> u64 {
            self.value.get()
        }
        fn read_after(&self, _: After) -> u64 {
            self.read()
        }
        fn fetch(&self) -> Option<u64> {
            self.fetched.set(self.fetched.get() + 1);
            let value = self.value.get();
            self.value.set(value + u64::from(!self.rests.get()));
            Some(value)
        }
        fn ask(&self) {}
    }

    /// Takes samples; how many of them fetched the counter's line.
    fn sampled(prefetch: &mut Prefetch<1>, counter: &[Written; 1], samples: u32) -> u32 {
        let before = counter[0].fetched.get();
        for _ in 0..samples {
            let fetched = prefetch.fetch(counter);
            prefetch.learn(fetched, &[counter[0].read()]);
        }
        counter[0].fetched.get() - before
    }

    #[test]
    fn what_is_written_without_a_rest_is_soon_fetched_no_more() {
        let (mut prefetch, counter) = (Prefetch::default(), [Written::default()]);
        assert_eq!(sampled(&mut prefetch, &counter, ENOUGH), ENOUGH);
        assert!(prefetch.is_vain());
        // At 8, 16, 32, 64, 128, 256, 512, and then each 256.
        assert_eq!(sampled(&mut prefetch, &counter, 10_000 - ENOUGH), 6 + 38);
        assert!(prefetch.is_vain());
    }

    #[test]
    fn one_fetch_of_use_brings_all_back() {
        let (mut prefetch, counter) = (Prefetch::default(), [Written::default()]);
        sampled(&mut prefetch, &counter, 10_000);
        counter[0].rests.set(true);
        assert!(sampled(&mut prefetch, &counter, LONGEST) > 0 && !prefetch.is_vain());
        assert_eq!(sampled(&mut prefetch, &counter, 1_000), 1_000);
    }

    #[test]
    fn after_a_short_burst_it_is_tried_soon() {
        let (mut prefetch, counter) = (Prefetch::default(), [Written::default()]);
        sampled(&mut prefetch, &counter, 20);
        counter[0].rests.set(true);
        sampled(&mut prefetch, &counter, 20);
        assert!(!prefetch.is_vain());
    }

    #[test]
    fn a_counter_that_is_not_fetched_is_never_in_vain() {
        let mut prefetch = Prefetch::<2>::default();
        for value in 0..100 {
            prefetch.learn([None, Some(value)], &[value, value + 1]);
        }
        assert!(prefetch.is_due(0) && !prefetch.is_vain());
    }
}
