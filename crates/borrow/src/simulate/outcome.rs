//! What a policy did, in the model.

use serde::Serialize;

use crate::grid::Grid;

/// Sums over the cores.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    pub time_ns: u64,
    pub waited_ns: u64,
    pub requests_ns: u64,
    pub batch_ns: u64,
    pub beside_ns: u64,
}

impl Sums {
    pub(super) fn add(&mut self, other: &Self) {
        self.time_ns += other.time_ns;
        self.waited_ns += other.waited_ns;
        self.requests_ns += other.requests_ns;
        self.batch_ns += other.batch_ns;
        self.beside_ns += other.beside_ns;
    }

    pub(super) fn outcome(&self, walls: &Grid) -> Outcome {
        let share = |ns: u64| ns as f64 / self.time_ns.max(1) as f64;
        Outcome {
            requests: walls.count(),
            p50_ns: walls.quantile(0.5),
            p99_ns: walls.quantile(0.99),
            p999_ns: walls.quantile(0.999),
            mean_wait_ns: self.waited_ns as f64 / walls.count().max(1) as f64,
            requests_share: share(self.requests_ns),
            batch_share: share(self.batch_ns),
            beside_share: share(self.beside_ns),
        }
    }
}

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
    /// How long a request waited for others, in the mean.
    pub mean_wait_ns: f64,
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
