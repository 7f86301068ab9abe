//! Which rows are kept: a share drawn at random, all of the live tail, and no more than a budget.
//!
//! The tail is what took longer than a quantile of the last seconds. That quantile is an
//! estimate, and may be a poor one, but no row's weight rests on it: a row says itself with
//! which probability it is there (`ts_row.kept`), so every estimate from the ledger is unbiased
//! whatever was steered meanwhile.
//!
//! The recorder decides every 200 ms. The quantile is that of the weighted rows of the last 10 to
//! 20 seconds. Under a budget, at most half of it goes to the tail. The result is two words for
//! each kind of span (`struct ts_retention`), sent to the kernel's programs and the SDK's processes.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tailscope_signals::clock::Monotonic;
use tailscope_signals::retention::{Kept, Retention};
use tailscope_trace::SpanName;

/// What to keep.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy {
    /// Of the spans that are not in the tail, at most this share; drawn at random.
    pub others: f64,
    /// All spans above this quantile of their kind's latest ones; `None`: no span for that.
    pub tail: Option<f64>,
    /// No more bytes of ledger a second than this.
    pub budget: Option<u64>,
}

impl Policy {
    /// Every row.
    pub const ALL: Self = Self {
        others: 1.0,
        tail: None,
        budget: None,
    };

    fn steers(&self) -> bool {
        self.budget.is_some() || self.tail.is_some()
    }
}

/// Draws which rows are kept, where the recorder itself decides.
#[derive(Debug)]
pub(crate) struct Draw(u64);

impl Default for Draw {
    fn default() -> Self {
        Self(Monotonic::now().0)
    }
}

impl Draw {
    /// Whether a row that took so long is kept, and with which probability it then was.
    pub(crate) fn keeps(&mut self, retention: Retention, wall_ns: u64) -> Option<Kept> {
        if retention.others == Kept::ALWAYS || retention.always_from.is_some_and(|f| wall_ns >= f) {
            return Some(Kept::ALWAYS);
        }
        // splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let drawn = (bits >> 11) as f64 / (1u64 << 53) as f64;
        (drawn < retention.others.probability()).then_some(retention.others)
    }
}

/// The tail that a budget is half spent on where no `tail` is asked for.
const USUAL_TAIL: f64 = 0.99;
/// The latest spans are those of one to two of these.
const STEER_EVERY: Duration = Duration::from_secs(10);
/// So many spans beyond the quantile make a tail. Until then all of a kind are kept.
const ENOUGH: f64 = 10.0;
/// A day; what is longer counts as a day.
const LONGEST_NS: u64 = 86_400_000_000_000;
/// What a row takes on disk before that was measured, and how many rows are a measure.
const USUAL_ROW_BYTES: f64 = 12.0;
const ROWS_TO_MEASURE: u64 = 10_000;

/// The wall times of one kind's latest spans, by their weights.
struct Walls {
    now: Histogram<u32>,
    before: Histogram<u32>,
}

impl Walls {
    fn new() -> Self {
        let empty =
            || Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("constant bounds are valid");
        Self {
            now: empty(),
            before: empty(),
        }
    }

    /// The quantile, if there are enough spans for it.
    fn quantile(&self, q: f64) -> Option<u64> {
        let mut both = self.before.clone();
        both.add(&self.now).expect("their bounds are the same");
        (both.len() as f64 * (1.0 - q) >= ENOUGH).then(|| both.value_at_quantile(q))
    }
}

/// How much was seen and written until a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) at: Instant,
    /// Spans that ended.
    pub(crate) spans: u64,
    /// Rows of them that were written.
    pub(crate) rows: u64,
}

/// Decides anew several times a second.
pub(crate) struct TailSampler {
    policy: Policy,
    kinds: HashMap<SpanName, Walls>,
    steered: Instant,
    last: Option<Flow>,
    /// Less than 1 while more was written than was planned: the tail had grown since.
    trim: f64,
    /// Whether the budget was short the last time.
    short: bool,
    tail: Option<f64>,
    others: Kept,
}

impl TailSampler {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            kinds: HashMap::new(),
            steered: Instant::now(),
            last: None,
            trim: 1.0,
            short: false,
            tail: policy.tail,
            others: Kept::nearest(policy.others),
        }
    }

    /// Whether it must hear of rows and decide again.
    pub(crate) fn steers(&self) -> bool {
        self.policy.steers()
    }

    /// A row that was kept.
    pub(crate) fn add(&mut self, kind: SpanName, wall_ns: i64, weight: f64) {
        if self.policy.steers() {
            let walls = self.kinds.entry(kind).or_insert_with(Walls::new);
            let count = weight.round().max(1.0) as u32;
            walls.now.saturating_record_n(wall_ns.max(0) as u64, count);
        }
    }

    /// Nothing came for a while, as nothing was recorded: what comes next is no flow since the last time.
    pub(crate) fn pause(&mut self) {
        self.last = None;
    }

    /// Looks at what came since the last time. `row_bytes`: what a row took on disk so far.
    pub(crate) fn steer(&mut self, flow: Flow, row_bytes: Option<f64>) {
        if flow.at.duration_since(self.steered) >= STEER_EVERY {
            self.steered = flow.at;
            for walls in self.kinds.values_mut() {
                std::mem::swap(&mut walls.now, &mut walls.before);
                walls.now.reset();
            }
        }
        let last = self.last.replace(flow);
        let (Some(budget), Some(last)) = (self.policy.budget, last) else {
            return;
        };
        let seconds = flow.at.duration_since(last.at).as_secs_f64();
        if seconds <= 0.0 {
            return;
        }
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let (spans, rows) = (
            per_second(flow.spans, last.spans),
            per_second(flow.rows, last.rows),
        );
        let allowed = budget as f64 / row_bytes.unwrap_or(USUAL_ROW_BYTES);
        self.trim = if self.short && rows > allowed {
            (self.trim * allowed / rows).max(0.05)
        } else {
            (self.trim * 1.2).min(1.0)
        };
        let share = allowed * self.trim / spans.max(1.0);
        self.short = share < 1.0;
        self.share_out(share);
    }

    /// Spends the share of the spans that may be kept: half of it at most on the tail.
    fn share_out(&mut self, share: f64) {
        if share >= 1.0 {
            (self.tail, self.others) = (self.policy.tail, Kept::nearest(self.policy.others));
            return;
        }
        let asked = 1.0 - self.policy.tail.unwrap_or(USUAL_TAIL);
        let tail = asked.min(share / 2.0);
        let others = (share - tail) / (1.0 - tail);
        self.tail = Some(1.0 - tail);
        self.others = Kept::nearest(others.min(self.policy.others));
    }

    /// What is kept of this kind from now on; times in ns.
    pub(crate) fn of(&self, kind: SpanName) -> Retention {
        let walls = || self.kinds.get(&kind);
        Retention {
            // Of a kind too rare to have a tail, all: that is little.
            always_from: self
                .tail
                .map(|q| walls().and_then(|walls| walls.quantile(q)).unwrap_or(0)),
            others: self.others,
        }
    }

    /// What is kept of kinds that nothing is known of.
    pub(crate) fn of_unknown(&self) -> Retention {
        Retention {
            always_from: self.tail.map(|_| 0),
            others: self.others,
        }
    }
}

/// Bytes a row, if there are rows enough to say.
pub(crate) fn row_bytes(rows: u64, bytes: u64) -> Option<f64> {
    (rows >= ROWS_TO_MEASURE).then(|| bytes as f64 / rows as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> SpanName {
        SpanName::default()
    }

    #[test]
    fn without_a_tail_only_chance_keeps() {
        let sampler = TailSampler::new(Policy {
            others: 0.25,
            ..Policy::ALL
        });
        assert!(!sampler.steers());
        assert_eq!(sampler.of(kind()).always_from, None);
        assert_eq!(sampler.of(kind()).others.probability(), 0.25);
    }

    #[test]
    fn the_tail_is_what_lies_beyond_the_quantile_by_weight() {
        let mut sampler = TailSampler::new(Policy {
            others: 0.01,
            tail: Some(0.99),
            budget: None,
        });
        assert_eq!(
            sampler.of(kind()).always_from,
            Some(0),
            "nothing known: all"
        );
        for _ in 0..99 {
            sampler.add(kind(), 1_000, 100.0);
        }
        for _ in 0..100 {
            sampler.add(kind(), 1_000_000, 1.0);
        }
        let from = sampler.of(kind()).always_from.expect("a tail");
        assert!((990..=1_010).contains(&from), "{from}");
        for _ in 0..100 {
            sampler.add(kind(), 1_000_000, 1.0);
        }
        let from = sampler.of(kind()).always_from.expect("a tail");
        assert!((990_000..=1_010_000).contains(&from), "{from}");
    }

    #[test]
    fn the_latest_spans_make_the_tail() {
        let mut sampler = TailSampler::new(Policy {
            others: 0.01,
            tail: Some(0.99),
            budget: None,
        });
        let start = Instant::now();
        let flow = |turn: u32| Flow {
            at: start + STEER_EVERY * turn + Duration::from_secs(1),
            spans: 0,
            rows: 0,
        };
        for (turn, wall) in [(1, 1_000_000), (2, 1_000), (3, 1_000)] {
            (0..2_000).for_each(|_| sampler.add(kind(), wall, 1.0));
            sampler.steer(flow(turn), None);
        }
        let from = sampler.of(kind()).always_from.expect("a tail");
        assert!(from < 1_100, "{from}");
    }

    /// Runs a recording of a steady load under a budget; gives the rows of the last second.
    fn run(policy: Policy, spans_per_second: f64, seconds: u32) -> f64 {
        let mut sampler = TailSampler::new(policy);
        let (start, mut rows, mut last) = (Instant::now(), 0.0, 0.0);
        for second in 0..=seconds {
            sampler.steer(
                Flow {
                    at: start + Duration::from_secs(second.into()),
                    spans: (spans_per_second * f64::from(second)) as u64,
                    rows: rows as u64,
                },
                Some(10.0),
            );
            let tail = sampler.tail.map_or(0.0, |q| 1.0 - q);
            last = spans_per_second * (tail + (1.0 - tail) * sampler.others.probability());
            rows += last;
        }
        last
    }

    #[test]
    fn a_budget_is_met_and_used() {
        for spans in [500.0, 20_000.0, 1e6] {
            let policy = Policy {
                budget: Some(100_000),
                ..Policy::ALL
            };
            let rows = run(policy, spans, 20);
            let wanted = spans.min(10_000.0);
            assert!(
                (0.9..=1.01).contains(&(rows / wanted)),
                "{rows} of {wanted}"
            );
        }
    }

    #[test]
    fn half_of_a_tight_budget_is_for_the_tail() {
        let mut sampler = TailSampler::new(Policy {
            budget: Some(1),
            ..Policy::ALL
        });
        sampler.share_out(0.001);
        assert!((sampler.tail.expect("a tail") - 0.9995).abs() < 1e-9);
        assert!((sampler.others.probability() - 0.0005).abs() < 1e-5);
    }
}
