//! What a policy did, in the model.

use serde::Serialize;

/// The figures of one policy. Shares are of the time from the first arrival to the last end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Requests.
    pub requests: u64,
    /// The median of their latency; null: too few.
    pub p50_ns: Option<u64>,
    /// The 99th percentile.
    pub p99_ns: Option<u64>,
    /// The 99.9th percentile.
    pub p999_ns: Option<u64>,
    /// The time in which the request lane was busy.
    pub requests_share: f64,
    /// The time in which batch ran.
    pub batch_share: f64,
    /// The part of it in which batch ran beside a request.
    pub beside_share: f64,
}

impl Outcome {
    /// The use of both lanes together: 0 to 2, or to 1 on one CPU.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.requests_share + self.batch_share
    }
}
