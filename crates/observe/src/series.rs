//! How rates went over time: sums by slices of equal length.

/// So many slices at most; where there would be more, each two become one, so that any length of
/// time fits without being known beforehand.
const MOST_SLICES: usize = 512;

/// What was seen in one slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slice<const N: usize> {
    /// Good pairs of samples.
    pub good: u64,
    /// Pairs that were dropped.
    pub dropped: u64,
    /// The time between the good ones, in cycles.
    pub cycles: u64,
    /// By how much each counter grew in it.
    pub grown: [u64; N],
}

impl<const N: usize> Default for Slice<N> {
    fn default() -> Self {
        Self {
            good: 0,
            dropped: 0,
            cycles: 0,
            grown: [0; N],
        }
    }
}

impl<const N: usize> Slice<N> {
    fn join(&mut self, other: &Self) {
        self.good += other.good;
        self.dropped += other.dropped;
        self.cycles += other.cycles;
        for i in 0..N {
            self.grown[i] += other.grown[i];
        }
    }
}

/// The slices from a moment on.
#[derive(Debug)]
pub struct Series<const N: usize> {
    begin: u64,
    length: u64,
    end_of_current: u64,
    slices: Vec<Slice<N>>,
}

impl<const N: usize> Series<N> {
    /// Slices of so many cycles at first.
    #[must_use]
    pub fn new(begin: u64, length: u64) -> Self {
        let length = length.max(1);
        let mut slices = Vec::with_capacity(MOST_SLICES + 1);
        slices.push(Slice::default());
        Self {
            begin,
            length,
            end_of_current: begin.saturating_add(length),
            slices,
        }
    }

    /// The slice that `now` lies in. Time does not go back; if it did, that is the last slice.
    #[inline(always)]
    pub fn at(&mut self, now: u64) -> &mut Slice<N> {
        if now >= self.end_of_current {
            self.advance(now);
        }
        let last = self.slices.len() - 1;
        &mut self.slices[last]
    }

    #[cold]
    fn advance(&mut self, now: u64) {
        let place = |length: u64| ((now - self.begin) / length) as usize;
        while place(self.length) >= MOST_SLICES {
            self.length *= 2;
            for pair in 0..self.slices.len().div_ceil(2) {
                let mut joined = self.slices[2 * pair];
                if let Some(second) = self.slices.get(2 * pair + 1) {
                    joined.join(second);
                }
                self.slices[pair] = joined;
            }
            self.slices.truncate(self.slices.len().div_ceil(2));
        }
        let place = place(self.length);
        self.slices.resize(place + 1, Slice::default());
        self.end_of_current = self.begin + (place as u64 + 1) * self.length;
    }

    /// Cycles of a slice.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// All of them, oldest first.
    #[must_use]
    pub fn slices(&self) -> &[Slice<N>] {
        &self.slices
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_pair_is_in_the_slice_of_its_time(
            steps in proptest::collection::vec(0u64..5_000, 1..300), length in 1u64..100,
        ) {
            let mut series: Series<1> = Series::new(1_000, length);
            let mut now = 1_000;
            let mut times = Vec::new();
            for step in steps {
                now += step;
                times.push(now);
                series.at(now).good += 1;
            }
            prop_assert!(series.slices().len() <= MOST_SLICES);
            for (i, slice) in series.slices().iter().enumerate() {
                let from = 1_000 + i as u64 * series.length();
                let inside = times.iter().filter(|t| (from..from + series.length()).contains(t));
                prop_assert_eq!(slice.good, inside.count() as u64, "{}", i);
            }
        }
    }
}
