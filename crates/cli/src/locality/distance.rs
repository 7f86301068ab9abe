//! How far apart CPUs are while a program is sampled: what it does takes longer where they are far.

use std::time::{Duration, Instant};

use serde::Serialize;
use tailscope_locality::chase::interval::median;
use tailscope_locality::chase::pair;
use tailscope_locality::report::Distance;
use tailscope_observe::Topology;

use crate::chase;

/// How often it is measured, which takes some milliseconds of two CPUs.
const EVERY: Duration = Duration::from_secs(2);
/// Where it takes longer, it is measured less often.
const LONG: Duration = Duration::from_millis(20);
/// The part of all times that are alike if the CPUs stayed as far apart: others may disturb a few.
const STEADY: f64 = 0.9;

/// Measures it now and then.
#[derive(Debug)]
pub struct Meter {
    looked: Option<Instant>,
    every: Duration,
    pub found: Distance,
}

impl Meter {
    /// Of the two CPUs that `locality predict` would choose; `None`: there are no two.
    pub fn of_two_cpus() -> Option<Self> {
        let topology = Topology::here().ok()?;
        let cpus = chase::chosen(&[], &topology).ok()?;
        Some(Self {
            looked: None,
            every: EVERY,
            found: Distance {
                cpus: cpus.try_into().ok()?,
                line_ns: Vec::new(),
            },
        })
    }

    /// Measures, unless it has just been done.
    pub fn look(&mut self) {
        let start = Instant::now();
        if self
            .looked
            .is_some_and(|looked| start - looked < self.every)
        {
            return;
        }
        self.looked = Some(start);
        // Without it, the prediction is of the CPUs as they are then.
        let found = pair::line_ns(self.found.cpus).ok().flatten();
        if found.is_none() || start.elapsed() > LONG {
            self.every *= 2;
        }
        self.found.line_ns.extend(found);
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
                "While it was sampled, a cache line took {} from one CPU to the other: a host may have \
                 moved this machine's CPUs. What was sampled is a mix; sample again.",
                range(sampled)
            ));
        }
        let is_there = |ns: &f64| steady(sampled).is_none_or(|wanted| pair::is_as_far(*ns, wanted));
        let is_same = acted.iter().all(is_there) && (acted.is_empty() || steady(acted).is_some());
        if is_same {
            return None;
        }
        let sampled = steady(sampled).map(|ns| format!(", and {ns:.0} ns where it was sampled"));
        Some(format!(
            "While it was replayed, a cache line took {} from one CPU to the other{}: the gain may \
             be another there.",
            range(acted),
            sampled.unwrap_or_default()
        ))
    }
}

/// The time of a line, if it stayed about the same.
pub fn steady(line_ns: &[f64]) -> Option<f64> {
    let median = median(line_ns);
    let alike = line_ns.iter().filter(|ns| pair::is_as_far(**ns, median));
    let is_steady = alike.count() as f64 >= STEADY * line_ns.len() as f64;
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
    fn cpus_that_stay_as_far_apart_need_no_word() {
        assert_eq!(moved(&[33.0, 31.0], &[34.0, 29.0]), "");
        assert_eq!(moved(&[], &[34.0, 29.0]), "");
        assert_eq!(moved(&[], &[]), "");
        let mut disturbed = [33.0; 20];
        disturbed[7] = 4_000.0;
        assert_eq!(moved(&disturbed, &[34.0]), "");
    }

    #[test]
    fn cpus_that_move_are_reported() {
        assert!(moved(&[33.0, 160.0], &[33.0]).contains("took 33 to 160 ns"));
        let elsewhere = moved(&[33.0, 32.0], &[33.0, 158.0]);
        assert!(elsewhere.contains("33 to 158 ns") && elsewhere.contains("33 ns where it was"));
        assert!(moved(&[], &[33.0, 158.0]).contains("33 to 158 ns"));
    }
}
