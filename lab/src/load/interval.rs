//! A run cut into intervals of equal length, for benches that switch something on and off.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::report::{Quantiles, json, per_second};
use super::tally::{Counts, Tally};
use crate::clock::Nanos;

/// Cuts a run into intervals of equal length and prints one line of JSON for each.
pub struct Interval {
    start: Nanos,
    begin: Nanos,
    every: Nanos,
    pub due: Nanos,
}

#[derive(Serialize)]
struct Line {
    kind: &'static str,
    /// When it ended: since the run's start, and as wall-clock time to hold beside other logs.
    end_ms: f64,
    unix_ns: u64,
    seconds: f64,
    warmup: bool,
    rate: f64,
    count: u64,
    errors: u64,
    latency_ns: Quantiles,
}

impl Interval {
    pub fn begin(start: Nanos, every: Nanos) -> Self {
        Self {
            start,
            begin: start,
            every,
            due: start + every,
        }
    }

    pub fn print_when_due(&mut self, now: Nanos, tally: &mut Tally) {
        if now < self.due {
            return;
        }
        let Counts {
            latency, errors, ..
        } = std::mem::take(&mut tally.interval);
        let seconds = (now - self.begin).as_secs_f64();
        let line = Line {
            kind: "interval",
            end_ms: (now - self.start).0 as f64 / 1e6,
            unix_ns: unix_ns(),
            seconds,
            warmup: now <= tally.begin,
            rate: per_second(latency.len(), seconds),
            count: latency.len(),
            errors,
            latency_ns: Quantiles::of(&latency),
        };
        println!("{}", json(&line));
        self.begin = now;
        while self.due <= now {
            self.due = self.due + self.every;
        }
    }
}

fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| Nanos::from(since).0)
}
