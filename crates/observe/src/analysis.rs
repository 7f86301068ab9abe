//! What is made of the samples while they come.
//!
//! The observer's own thread does this, in tables of bounded size.

use tailscope_signals::clock::Cycles;

use crate::dte::Tolerance;
use crate::histogram::Histogram;
use crate::joint::Joint;
use crate::sampler::{Sample, Sink};
use crate::series::Series;
use crate::tags::Tags;

/// One counter's rates, in counts a cycle of the clock.
#[derive(Debug, Default)]
pub struct Rates {
    /// Of the pairs of samples that the error correction kept.
    pub kept: Histogram,
    /// Of all pairs.
    pub all: Histogram,
    /// By how much it grew in those kept.
    pub grown: u64,
    /// By how much it grew in all.
    pub all_grown: u64,
}

/// The first counter by the second, by pair of samples: of instructions and cycles it is the IPC.
#[derive(Debug, Default)]
pub struct Ratios {
    /// Of the pairs kept in which the second counter grew.
    pub kept: Histogram,
    /// The pairs kept in which it did not: they have no ratio.
    pub without: u64,
}

impl Ratios {
    #[inline(always)]
    fn add(&mut self, first: u64, second: u64) {
        match second {
            0 => self.without += 1,
            second => self.kept.add(first as f64 / second as f64),
        }
    }
}

/// Two counters' rates together: what their correlation follows from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Together {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
}

impl Together {
    #[inline(always)]
    fn add(&mut self, x: f64, y: f64) {
        self.n += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
    }

    /// Pearson's, from −1 to 1; `None` where one of both never varied.
    #[must_use]
    pub fn correlation(&self) -> Option<f64> {
        let over = self.n * self.xy - self.x * self.y;
        let under = (self.n * self.xx - self.x * self.x) * (self.n * self.yy - self.y * self.y);
        (under > 0.0).then(|| (over / under.sqrt()).clamp(-1.0, 1.0))
    }
}

/// How many pairs of samples went where.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Samples.
    pub samples: u64,
    /// Those of them whose counters were read again.
    pub again: u64,
    /// Values, of counters and tags, that were not what the sample before had seen.
    pub changes: u64,
    /// Pairs of which rates were told.
    pub kept: u64,
    /// Pairs that were dropped because the two clocks disagreed.
    pub disagreed: u64,
    /// Pairs that were dropped because the observer lost its CPU in between.
    pub preempted: u64,
    /// Pairs in which the first counter grew by more than it can.
    pub impossible: u64,
    /// Those of them that were kept.
    pub impossible_kept: u64,
    /// Cycles between the pairs that were kept.
    pub kept_cycles: u64,
    /// Cycles between all pairs.
    pub cycles: u64,
}

/// Everything that is told of the samples of one run.
#[derive(Debug)]
pub struct Analysis<const N: usize, const T: usize> {
    tolerance: Tolerance,
    masks: [u64; N],
    /// How fast the first counter can grow at most, in counts a cycle.
    most: f64,
    last: Option<Sample<N, T>>,
    /// How many went where.
    pub counts: Counts,
    /// By counter.
    pub rates: [Rates; N],
    /// Cycles from one sample to the next.
    pub periods: Histogram,
    /// Cycles from the first reading of the clock to the second.
    pub reads: Histogram,
    /// By the tags' values.
    pub tags: Tags<N, T>,
    /// The first counter by the second.
    pub ratios: Ratios,
    /// The first counter's rate with the second's.
    pub together: Together,
    /// How often each pair of both came.
    pub joint: Joint,
    /// Over time.
    pub series: Series<N>,
}

impl<const N: usize, const T: usize> Analysis<N, T> {
    /// Of samples from now on; `masks` has all ones in the bits that each counter has.
    #[must_use]
    pub fn new(
        tolerance: Tolerance,
        masks: [u64; N],
        most: Option<f64>,
        slice_cycles: u64,
    ) -> Self {
        Self {
            tolerance,
            masks,
            most: most.unwrap_or(f64::INFINITY),
            last: None,
            counts: Counts::default(),
            rates: std::array::from_fn(|_| Rates::default()),
            periods: Histogram::default(),
            reads: Histogram::default(),
            tags: Tags::default(),
            ratios: Ratios::default(),
            together: Together::default(),
            joint: Joint::new(N > 1),
            series: Series::new(Cycles::now().0, slice_cycles),
        }
    }

    /// What comes next has nothing to do with what came before: no sample was taken meanwhile.
    pub fn interrupt(&mut self) {
        self.last = None;
    }
}

impl<const N: usize, const T: usize> Sink<N, T> for Analysis<N, T> {
    #[inline(always)]
    fn take(&mut self, sample: &Sample<N, T>) {
        self.counts.samples += 1;
        self.counts.again += u64::from(sample.again);
        self.reads.add(sample.end.wrapping_sub(sample.start) as f64);
        let Some(last) = self.last.replace(*sample) else {
            return;
        };
        let by_first = sample.start.wrapping_sub(last.start);
        let by_second = sample.end.wrapping_sub(last.end);
        self.counts.cycles += by_first;
        self.periods.add(by_first as f64);
        let per_cycle = 1.0 / by_first.max(1) as f64;
        let mut grown = [0; N];
        let mut rates = [0.0; N];
        for i in 0..N {
            grown[i] = sample.counters[i].wrapping_sub(last.counters[i]) & self.masks[i];
            rates[i] = grown[i] as f64 * per_cycle;
            self.counts.changes += u64::from(grown[i] != 0);
            self.rates[i].all.add(rates[i]);
            self.rates[i].all_grown += grown[i];
        }
        for i in 0..T {
            self.counts.changes += u64::from(sample.tags[i] != last.tags[i]);
        }
        // Whatever its rate, a pair may see one count more: at its end, or at its begin.
        let longest = by_first + self.tolerance.cycles(by_first);
        let impossible = grown[0] as f64 > self.most * longest as f64 + 1.0;
        self.counts.impossible += u64::from(impossible);
        let slice = self.series.at(sample.start);
        if sample.preempted || !self.tolerance.holds(by_first, by_second) {
            slice.dropped += 1;
            if sample.preempted {
                self.counts.preempted += 1;
            } else {
                self.counts.disagreed += 1;
            }
            return;
        }
        slice.good += 1;
        slice.cycles += by_first;
        self.counts.kept += 1;
        self.counts.impossible_kept += u64::from(impossible);
        self.counts.kept_cycles += by_first;
        for i in 0..N {
            slice.grown[i] += grown[i];
            self.rates[i].grown += grown[i];
            self.rates[i].kept.add(rates[i]);
        }
        if N > 1 {
            self.ratios.add(grown[0], grown[1]);
            self.together.add(rates[0], rates[1]);
            self.joint.add(rates[0], rates[1]);
        }
        if T > 0 {
            self.tags
                .add([&last.tags, &sample.tags], by_first, &grown, &rates);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn analysis() -> Analysis<2, 1> {
        Analysis::new(
            Tolerance::new(0.01, 0),
            [u64::MAX, 0xffff],
            Some(0.01),
            1 << 40,
        )
    }

    /// A sample at `start` whose reading took `took`.
    fn at(start: u64, took: u64, counters: [u64; 2], tag: u64, preempted: bool) -> Sample<2, 1> {
        Sample {
            start,
            end: start + took,
            counters,
            tags: [tag],
            again: false,
            preempted,
        }
    }

    proptest! {
        #[test]
        fn the_books_balance(
            steps in proptest::collection::vec((1u64..10_000, 0u64..200, 0u64..100, any::<bool>()), 1..200),
        ) {
            let mut analysis = analysis();
            let (mut start, mut counter) = (u64::from(u32::MAX), 0u64);
            for (step, took, grown, preempted) in &steps {
                start += step + 200;
                counter += grown;
                analysis.take(&at(start, *took, [counter, counter & 0xffff], 1, *preempted));
            }
            let counts = analysis.counts;
            prop_assert_eq!(counts.samples, steps.len() as u64);
            prop_assert_eq!(
                counts.kept + counts.disagreed + counts.preempted,
                steps.len() as u64 - 1
            );
            prop_assert_eq!(analysis.rates[0].kept.count(), counts.kept);
            prop_assert_eq!(analysis.rates[0].all.count(), counts.samples - 1);
            let joint = analysis.joint.cells();
            prop_assert_eq!(joint.iter().map(|cell| cell.2).sum::<u64>(), counts.kept);
            let ratios = &analysis.ratios;
            prop_assert_eq!(ratios.kept.count() + ratios.without, counts.kept);
            // Sixteen bits tell the same growth as sixty-four: it wraps, and nothing is lost.
            prop_assert_eq!(analysis.rates[0].grown, analysis.rates[1].grown);
            let (tags, _) = analysis.tags.by_time();
            prop_assert_eq!(tags.iter().map(|(_, seen)| seen.samples).sum::<u64>(), counts.kept);
        }
    }

    #[test]
    fn a_sample_that_was_held_up_within_its_reading_makes_no_rate() {
        let mut analysis = analysis();
        // One count in 100 cycles. The third sample's counters were read 50,000 cycles late: told
        // from the first clock, it would be 51 counts in 1,000 cycles, five times what can be.
        analysis.take(&at(1_000, 50, [10, 0], 1, false));
        analysis.take(&at(2_000, 50, [20, 0], 1, false));
        analysis.take(&at(3_000, 50_050, [530, 0], 1, false));
        analysis.take(&at(54_000, 50, [540, 0], 1, false));
        analysis.take(&at(55_000, 50, [550, 0], 1, false));
        assert_eq!((analysis.counts.kept, analysis.counts.disagreed), (2, 2));
        assert!((analysis.rates[0].kept.max() - 0.01).abs() < 1e-12);
        assert!(analysis.rates[0].all.max() > 0.5);
        assert_eq!(
            (analysis.counts.impossible, analysis.counts.impossible_kept),
            (1, 0)
        );
    }

    #[test]
    fn after_an_interruption_begins_something_new() {
        let mut analysis = analysis();
        analysis.take(&at(1_000, 50, [10, 0], 1, false));
        analysis.interrupt();
        analysis.take(&at(9_000, 50, [90, 0], 1, false));
        assert_eq!((analysis.counts.samples, analysis.counts.kept), (2, 0));
    }

    #[test]
    fn a_pair_has_a_ratio_where_the_second_counter_grew() {
        let mut analysis = analysis();
        let (mut start, mut counters) = (0, [0, 0]);
        analysis.take(&at(start, 50, counters, 1, false));
        // Three by two, three times as often as one by two; and five pairs in which nothing ran.
        for (first, second) in [(3, 2), (3, 2), (3, 2), (1, 2)]
            .into_iter()
            .chain([(0, 0); 5])
        {
            start += 1_000;
            counters = [counters[0] + first, counters[1] + second];
            analysis.take(&at(start, 50, counters, 1, false));
        }
        let ratios = &analysis.ratios;
        assert_eq!((ratios.kept.count(), ratios.without), (4, 5));
        let near = |share: f64, ratio: f64| {
            let found = ratios.kept.quantile(share).expect("there are some");
            (found / ratio - 1.0).abs() < 0.005
        };
        assert!(near(0.25, 0.5) && near(0.26, 1.5) && near(1.0, 1.5));
        assert!((ratios.kept.mean().expect("some") - 1.25).abs() < 1e-12);
    }

    #[test]
    fn rates_that_go_together_correlate() {
        let mut analysis = analysis();
        let (mut start, mut counters) = (0, [0, 0]);
        for i in 0..100u64 {
            start += 1_000;
            counters = [counters[0] + i % 7, counters[1] + 2 * (i % 7)];
            analysis.take(&at(start, 50, counters, i, false));
        }
        assert!(analysis.together.correlation().expect("they vary") > 0.9999);
        assert_eq!(Together::default().correlation(), None);
    }
}
