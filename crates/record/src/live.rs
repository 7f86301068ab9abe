//! Quantiles while it runs: for the progress line, not for estimates.

use hdrhistogram::Histogram;

/// The latencies of all spans so far, to 1 %.
#[derive(Debug)]
pub(crate) struct Live(Histogram<u64>);

/// An hour; what is longer counts as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Live {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("constant bounds are valid"))
    }

    /// A row, and how many spans it stands for.
    pub(crate) fn add(&mut self, wall_ns: i64, weight: f64) {
        let spans = weight.round().max(1.0) as u64;
        self.0.saturating_record_n(wall_ns.max(0) as u64, spans);
    }

    pub(crate) fn quantile(&self, q: f64) -> Option<u64> {
        (!self.0.is_empty()).then(|| self.0.value_at_quantile(q))
    }
}
