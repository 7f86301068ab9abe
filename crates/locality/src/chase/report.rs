//! Everything that one run of the benchmark found.

use serde::Serialize;

use crate::chase::caches::Caches;
use crate::chase::cost::Costs;
use crate::chase::experiment::Point;
use crate::chase::levels::{Latency, knee_of, knees};
use crate::chase::pair::Pair;

/// What the benchmark found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The CPU of each cluster, of which the first two are calibrated.
    pub cpus: Vec<u32>,
    /// Whether sysfs says that the first two CPUs are threads of one core.
    pub one_core_by_topology: bool,
    /// How the first two CPUs behave.
    pub pair: Pair,
    /// The share of the first two CPUs' time that others had during the calibration; `None` if the
    /// kernel does not say.
    pub others: Option<f64>,
    /// What sysfs says about the first CPU's caches.
    pub caches: Caches,
    /// Costs of fibres between the first two CPUs.
    pub costs: Costs,
    /// The first CPU's latencies; empty if they were not asked for.
    pub latencies: Vec<Latency>,
    /// Where they rise.
    pub knees: Vec<u64>,
    /// One for each working set and share of writes.
    pub points: Vec<Point>,
    /// The number of points that were planned: more than there are if a signal ended the run.
    pub planned: usize,
    /// The number of sessions of each point.
    pub sessions: usize,
    /// The seed of paths and orders.
    pub seed: u64,
}

impl Report {
    /// Sets the latencies, and finds their knees.
    pub fn add_latencies(&mut self, latencies: Vec<Latency>) {
        self.knees = knees(&latencies);
        self.latencies = latencies;
    }

    /// By cache that sysfs names and that the latencies reach: its name, its size, its knee.
    #[must_use]
    pub fn compared(&self) -> Vec<(&'static str, u64, Option<u64>)> {
        let most = self.latencies.last().map_or(0, |latency| latency.bytes);
        let caches = [
            ("L1d", self.caches.l1d),
            ("L2", self.caches.l2),
            ("L3", self.caches.l3),
        ];
        let known = caches
            .into_iter()
            .filter_map(|(name, size)| Some((name, size?)));
        let reached = known.filter(|(_, size)| 2 * size <= most);
        let compared = reached.map(|(name, size)| (name, size, knee_of(size, &self.knees)));
        compared.collect()
    }
}
