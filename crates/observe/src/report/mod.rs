//! What a run saw, what it dropped and what it cost. `docs/reference/observe.md` says each field's
//! meaning.

mod context;
mod make;
mod notices;

use serde::Serialize;

pub use crate::effect::Effect;
use crate::histogram::Histogram;
pub use crate::raw::Written;
pub(crate) use context::Context;
pub(crate) use make::report;

/// Numbers of one kind: how they are distributed.
#[derive(Debug, Clone, Serialize)]
pub struct Distribution {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: Option<f64>,
    /// Their standard deviation.
    pub deviation: Option<f64>,
    /// At or below which 1 % of them are.
    pub p1: Option<f64>,
    /// 10 %.
    pub p10: Option<f64>,
    /// 50 %.
    pub p50: Option<f64>,
    /// 90 %.
    pub p90: Option<f64>,
    /// 99 %.
    pub p99: Option<f64>,
    /// 99.9 %.
    pub p999: Option<f64>,
    /// The largest.
    pub max: f64,
}

impl Distribution {
    /// Of a histogram whose numbers are each to be taken `times`.
    #[must_use]
    pub fn of(histogram: &Histogram, times: f64) -> Self {
        let quantile = |share| histogram.quantile(share).map(|value| value * times);
        Self {
            count: histogram.count(),
            mean: histogram.mean().map(|mean| mean * times),
            deviation: histogram.deviation().map(|deviation| deviation * times),
            p1: quantile(0.01),
            p10: quantile(0.1),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            p999: quantile(0.999),
            max: histogram.max() * times,
        }
    }
}

/// A counter's rates, in counts a second.
#[derive(Debug, Clone, Serialize)]
pub struct Rate {
    /// The signal.
    pub signal: String,
    /// How it is read.
    pub how: String,
    /// All that was counted over all the time, of the pairs of samples that were kept.
    pub per_second: Option<f64>,
    /// The same for each cycle of the clock.
    pub per_cycle: Option<f64>,
    /// Of all pairs. Right whatever single pairs say, for what one has too much the next has too
    /// little: where it differs from `per_second`, the pairs kept are not like those dropped.
    pub all_per_second: Option<f64>,
    /// Of the pairs kept.
    pub kept: Distribution,
    /// Of all pairs, the impossible ones too.
    pub all: Distribution,
    /// The distribution of the pairs kept, as pairs of a rate and how often it came.
    pub cells: Vec<(f64, u64)>,
}

/// One value of the tags.
#[derive(Debug, Clone, Serialize)]
pub struct Value {
    /// A number for each tag; null: all values that found no place of their own.
    pub tags: Option<Vec<u64>>,
    /// What they stand for, where that has a name.
    pub names: Option<Vec<Option<String>>>,
    /// Which share of the samples saw it.
    pub share: f64,
    /// Pairs of samples that both saw it: of these are the rates.
    pub samples: u64,
    /// By counter, the rate in counts a second, null where it is unknown as of
    /// [`ByTag::changed_grown`]; null: no pair.
    pub per_second: Option<Vec<Option<f64>>>,
    /// By counter, the standard deviation of the samples' rates, in counts a second.
    pub deviation: Vec<f64>,
}

/// One function of the observed program.
#[derive(Debug, Clone, Serialize)]
pub struct Function {
    /// Its name; null: the addresses that none is known for.
    pub name: Option<String>,
    /// Which share of the samples saw it.
    pub share: f64,
    /// Pairs of samples that both saw the same place of it: of these are the rates.
    pub samples: u64,
    /// By counter, the rate in counts a second, as of a value; null: no pair.
    pub per_second: Option<Vec<Option<f64>>>,
}

/// Rates by tag.
#[derive(Debug, Clone, Serialize)]
pub struct ByTag {
    /// The signals that are tags.
    pub signals: Vec<String>,
    /// How many different values were seen, as far as there was room.
    pub distinct: usize,
    /// Longest first.
    pub values: Vec<Value>,
    /// Where the first tag is a place in a program, the same by function, longest first.
    pub functions: Option<Vec<Function>>,
    /// Pairs of samples between which a tag changed: they belong to no value.
    pub changed: u64,
    /// Their share of the time of all pairs kept: of it no rate is told.
    pub changed_share: f64,
    /// By counter, the share of its growth that lies in those pairs and so belongs to no value; null:
    /// it did not grow. Where that is nearly all of it, in little of the time, the counter grows when
    /// the tag changes, and its rates by value are unknown.
    pub changed_grown: Vec<Option<f64>>,
}

/// From this share of a counter's growth on, in at most that share of the time, it grows when the
/// tag changes. Far from both: a counter that grows at an even rate has the same share in both.
const GROWS_AT_CHANGES: (f64, f64) = (0.9, 0.5);

impl ByTag {
    /// Whether a counter grows when the tag changes.
    #[must_use]
    pub fn grows_at_changes(&self, counter: usize) -> bool {
        let (growth, time) = GROWS_AT_CHANGES;
        let grown = self.changed_grown.get(counter).copied().flatten();
        self.changed_share <= time && grown.is_some_and(|share| share >= growth)
    }

    /// Takes away the rates of counters that grow when the tag changes.
    fn without_unknown(mut self) -> Self {
        let counters = 0..self.changed_grown.len();
        for counter in counters
            .filter(|counter| self.grows_at_changes(*counter))
            .collect::<Vec<_>>()
        {
            let values = self.values.iter_mut().map(|value| &mut value.per_second);
            let functions = self.functions.iter_mut().flatten();
            let rates = values.chain(functions.map(|function| &mut function.per_second));
            for rate in rates.flatten().filter_map(|rates| rates.get_mut(counter)) {
                *rate = None;
            }
        }
        self
    }
}

/// A slice of time.
#[derive(Debug, Clone, Serialize)]
pub struct Slice {
    /// From the begin, in seconds.
    pub at: f64,
    /// Pairs of samples kept.
    pub kept: u64,
    /// Pairs dropped.
    pub dropped: u64,
    /// By counter, the rate in counts a second; null: no pair was kept.
    pub per_second: Option<Vec<f64>>,
}

/// What a run saw.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The observer's CPU.
    pub cpu: u32,
    /// The application's, if that is known.
    pub observed_cpu: Option<u32>,
    /// `same core` or `other core`.
    pub placement: &'static str,
    /// Cycles of the clock in a second.
    pub clock_hz: u64,
    /// How long it went on, pauses included.
    pub seconds: f64,
    /// Why it ended.
    pub end: String,
    /// The period that was asked for, or found last, in cycles; null: as fast as it goes.
    pub period: Option<u64>,
    /// Samples taken.
    pub samples: u64,
    /// Those of them whose counters were read a second time, for the first took unusually long.
    pub again: u64,
    /// Pairs of samples of which rates are told.
    pub kept: u64,
    /// Pairs dropped because the two readings of the clock disagreed.
    pub disagreed: u64,
    /// Pairs dropped because the observer lost its CPU in between.
    pub preempted: u64,
    /// Whether it would have been noticed.
    pub preemption_noticed: bool,
    /// Kept, of all pairs.
    pub kept_share: Option<f64>,
    /// By how much the two readings may disagree.
    pub tolerance: f64,
    /// By how many cycles the clock goes on at a time: so far they may disagree, too.
    pub clock_step: u64,
    /// Pairs in which the first counter grew by more than it can; null: that is not known.
    pub impossible: Option<Impossible>,
    /// By counter.
    pub rates: Vec<Rate>,
    /// The first counter by the second, in the pairs kept.
    pub ratio: Option<f64>,
    /// The same by pair of samples; null: there is one counter.
    pub ratios: Option<Ratios>,
    /// The correlation of the first two counters' rates.
    pub correlation: Option<f64>,
    /// How often the first two counters' rates came together, as triples of both, in counts a second,
    /// and a number of pairs of samples; rates are told to 6 %.
    pub joint: Option<Vec<(f64, f64, u64)>>,
    /// By the tags' values.
    pub by_tag: Option<ByTag>,
    /// Cycles from one sample to the next.
    pub periods: Distribution,
    /// Cycles from a sample's first reading of the clock to its second.
    pub reads: Distribution,
    /// How much of the time is in gaps: periods ten times as long as the median and more.
    pub gaps: Gaps,
    /// Over time.
    pub series: Vec<Slice>,
    /// The signal by which the application's speed was measured.
    pub progress: String,
    /// What observing took from that speed; null: too short, or it made no progress.
    pub effect: Option<Effect>,
    /// The budget that was asked for.
    pub budget: Option<f64>,
    /// What became of the raw samples, if they were asked for.
    pub raw: Option<Written>,
    /// What should be known before the figures are believed.
    pub notices: Vec<String>,
    /// Distributions that have no place above, for pictures.
    pub curves: Curves,
}

/// Distributions in full: pairs of a number, of cycles if nothing else is said, and how often it came.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Curves {
    /// By counter, the rates of all pairs, the impossible ones too, in counts a second.
    pub all: Vec<Vec<(f64, u64)>>,
    /// From one sample to the next.
    pub periods: Vec<(f64, u64)>,
    /// Within a sample.
    pub reads: Vec<(f64, u64)>,
}

/// The first counter by the second, by pair of samples: instructions by cycles, say.
#[derive(Debug, Clone, Serialize)]
pub struct Ratios {
    /// Of the pairs kept in which the second counter grew, each counting the same.
    pub kept: Distribution,
    /// Pairs kept in which it did not grow: they have no ratio.
    pub without: u64,
    /// The distribution, as pairs of a ratio and how often it came.
    pub cells: Vec<(f64, u64)>,
}

/// Pairs that can't be, for the counter can't grow so fast (and by one count more, which any pair may
/// see at its ends).
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Impossible {
    /// Counts a cycle, at most.
    pub most: f64,
    /// Of all pairs.
    pub all: u64,
    /// Of the pairs kept.
    pub kept: u64,
}

/// Where the observer itself was held up.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// Their share of the time.
    pub share: f64,
    /// The longest, in cycles.
    pub longest: f64,
}

impl Gaps {
    fn of(periods: &Histogram) -> Self {
        let from = periods.quantile(0.5).unwrap_or(0.0) * 10.0;
        let cells = periods.cells();
        let time = |cells: &[(f64, u64)]| cells.iter().map(|(at, n)| at * *n as f64).sum::<f64>();
        let gaps: Vec<_> = cells
            .iter()
            .copied()
            .filter(|(at, _)| *at >= from)
            .collect();
        let all = time(&cells);
        Self {
            count: gaps.iter().map(|(_, n)| n).sum(),
            share: if all > 0.0 { time(&gaps) / all } else { 0.0 },
            longest: if gaps.is_empty() { 0.0 } else { periods.max() },
        }
    }
}
