//! How far apart CPUs are while a program is sampled: what it does takes longer where they are far.

use std::time::{Duration, Instant};

use serde::Serialize;
use tailscope_locality::chase::interval::median;
use tailscope_locality::chase::pair;
use tailscope_observe::Topology;

use crate::chase;

/// How often it is measured, which takes some milliseconds of two CPUs.
const EVERY: Duration = Duration::from_secs(2);

/// The times of a cache line from one CPU to another.
#[derive(Debug, Default)]
pub struct Distance {
    /// Which CPUs; `None`: it is not measured.
    cpus: Option<[u32; 2]>,
    looked: Option<Instant>,
    /// In ns.
    pub found: Vec<f64>,
}

impl Distance {
    /// Of the two CPUs that `locality predict` would choose.
    pub fn of_two_cpus() -> Self {
        let topology = Topology::here().ok();
        let cpus = topology.and_then(|topology| chase::chosen(&[], &topology).ok());
        Self {
            cpus: cpus.and_then(|cpus| cpus.try_into().ok()),
            ..Self::default()
        }
    }

    /// Measures, unless it has just been done.
    pub fn look(&mut self) {
        let is_due = self.looked.is_none_or(|looked| looked.elapsed() >= EVERY);
        let Some(cpus) = self.cpus.filter(|_| is_due) else {
            return;
        };
        self.looked = Some(Instant::now());
        // Without it, the prediction is of the CPUs as they are then.
        self.found.extend(pair::line_ns(cpus).ok().flatten());
    }
}

/// ns of a cache line from one CPU to the other.
#[derive(Debug, Default, Serialize)]
pub struct LineNs {
    /// While the program was sampled.
    pub sampled: Vec<f64>,
    /// In each process that acted something out.
    pub acted: Vec<f64>,
}

impl LineNs {
    /// What is to be said if the CPUs were not as far apart all of the time.
    pub fn moved(&self) -> Option<String> {
        let Self { sampled, acted } = self;
        let range = |all: &[f64]| {
            let least = all.iter().copied().fold(f64::INFINITY, f64::min);
            format!(
                "{least:.0} to {:.0} ns",
                all.iter().copied().fold(0.0, f64::max)
            )
        };
        if !sampled.is_empty() && steady(sampled).is_none() {
            return Some(format!(
                "While it was sampled, a cache line took {} from one CPU to the other: a host moves this \
             machine's CPUs. What was sampled is a mix; sample again.",
                range(sampled)
            ));
        }
        let is_there = |ns: &f64| steady(sampled).is_none_or(|wanted| pair::is_as_far(*ns, wanted));
        let is_same = acted.iter().all(is_there) && (acted.is_empty() || steady(acted).is_some());
        (!is_same).then(|| {
        let sampled = steady(sampled).map(|ns| format!(", and {ns:.0} ns where it was sampled"));
        format!(
            "While it was acted out, a cache line took {} from one CPU to the other{}: the gain may \
             be another there.",
            range(acted),
            sampled.unwrap_or_default()
        )
    })
    }
}

/// The time of a line, if it stayed about the same.
pub fn steady(line_ns: &[f64]) -> Option<f64> {
    let median = median(line_ns);
    let is_steady = line_ns.iter().all(|ns| pair::is_as_far(*ns, median));
    (is_steady && !line_ns.is_empty()).then_some(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(sampled: &[f64], acted: &[f64]) -> String {
        let (sampled, acted) = (sampled.to_vec(), acted.to_vec());
        LineNs { sampled, acted }.moved().unwrap_or_default()
    }

    #[test]
    fn cpus_that_stay_as_far_apart_are_no_word_worth() {
        assert_eq!(moved(&[33.0, 31.0], &[34.0, 29.0]), "");
        assert_eq!(moved(&[], &[34.0, 29.0]), "");
        assert_eq!(moved(&[], &[]), "");
    }

    #[test]
    fn cpus_that_move_are_told_of() {
        assert!(moved(&[33.0, 160.0], &[33.0]).contains("took 33 to 160 ns"));
        let elsewhere = moved(&[33.0, 32.0], &[33.0, 158.0]);
        assert!(elsewhere.contains("33 to 158 ns") && elsewhere.contains("33 ns where it was"));
        assert!(moved(&[], &[33.0, 158.0]).contains("33 to 158 ns"));
    }
}
