//! What a run says: a few lines for people, one JSON object for machines.

use std::fmt::{self, Write as _};

use hdrhistogram::Histogram;
use serde::Serialize;

use super::plan::{Outcome, Pace, Plan};
use super::tally::Tally;
use crate::clock::Nanos;

/// Everything about a run. Times are in nanoseconds unless the name says otherwise.
#[derive(Serialize)]
pub struct Report {
    kind: &'static str,
    target: String,
    mode: &'static str,
    connections: usize,
    depth: usize,
    /// Each request had a connection of its own.
    fresh: bool,
    seconds: f64,
    /// Requests per second asked for; null in a closed loop.
    rate_asked: Option<f64>,
    /// Replies that came in the window, per second.
    rate: f64,
    /// Requests due in the window that were answered, errors and misses among them.
    count: u64,
    errors: u64,
    misses: u64,
    unanswered: usize,
    reconnects: u64,
    interrupted: bool,
    failure: Option<String>,
    latency_ns: Quantiles,
    /// The latency without the generator's own delays: from the send (or the connect before it) to
    /// the kernel's receipt of the reply's last byte.
    served_ns: Quantiles,
    /// The generator's own delay: from due until it turned to the request. Null in a closed loop.
    lag_ns: Option<Quantiles>,
    /// HdrHistogram's percentile list of the latency.
    percentiles: Vec<Step>,
    /// The latency histogram itself, [value, count], without loss to HdrHistogram's 3 digits.
    buckets: Vec<(u64, u64)>,
    /// The same of `served_ns`.
    served_buckets: Vec<(u64, u64)>,
}

/// The usual summary of a distribution, in nanoseconds.
#[derive(Serialize)]
pub struct Quantiles {
    min: u64,
    mean: f64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

/// One line of HdrHistogram's percentile list.
#[derive(Serialize)]
struct Step {
    percentile: f64,
    value_ns: u64,
    /// How many were at or below.
    count: u64,
}

impl Quantiles {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            min: histogram.min(),
            mean: (histogram.mean() * 10.0).round() / 10.0,
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

fn percentiles(histogram: &Histogram<u64>) -> Vec<Step> {
    histogram
        .iter_quantiles(5)
        .scan(0, |count, step| {
            *count += step.count_since_last_iteration();
            let percentile = step.quantile_iterated_to() * 100.0;
            Some(Step {
                percentile,
                value_ns: step.value_iterated_to(),
                count: *count,
            })
        })
        .collect()
}

fn buckets(histogram: &Histogram<u64>) -> Vec<(u64, u64)> {
    histogram
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect()
}

impl Report {
    pub fn of(target: String, plan: &Plan, outcome: &Outcome) -> Self {
        let Tally {
            whole,
            lag,
            reconnects,
            ..
        } = &outcome.tally;
        let seconds = outcome.tally.span().as_secs_f64();
        let (mode, rate_asked) = match plan.pace {
            Pace::Open { rate } => ("open", Some(rate)),
            Pace::Closed => ("closed", None),
        };
        Self {
            kind: "run",
            target,
            mode,
            connections: plan.connections,
            depth: plan.depth,
            fresh: plan.fresh,
            seconds,
            rate_asked,
            rate: per_second(outcome.tally.replies_in_window, seconds),
            count: whole.latency.len(),
            errors: whole.errors,
            misses: whole.misses,
            unanswered: outcome.unanswered,
            reconnects: *reconnects,
            interrupted: outcome.interrupted,
            failure: outcome
                .failure
                .as_ref()
                .map(|failure| format!("{failure:#}")),
            latency_ns: Quantiles::of(&whole.latency),
            served_ns: Quantiles::of(&whole.served),
            lag_ns: rate_asked.map(|_| Quantiles::of(lag)),
            percentiles: percentiles(&whole.latency),
            buckets: buckets(&whole.latency),
            served_buckets: buckets(&whole.served),
        }
    }

    /// The generator was late enough to matter: a third of what it measured, at the tail.
    fn generator_trouble(&self) -> bool {
        self.lag_ns
            .as_ref()
            .is_some_and(|lag| lag.p99 * 3 > self.latency_ns.p99)
    }
}

pub fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        (count as f64 / seconds * 10.0).round() / 10.0
    } else {
        0.0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.connections == 1 { "" } else { "s" };
        let fresh = if self.fresh {
            ", each for one request"
        } else {
            ""
        };
        writeln!(
            f,
            "{}: {} loop, {} connection{plural}{fresh}",
            self.target, self.mode, self.connections
        )?;
        let asked = self
            .rate_asked
            .map_or(String::new(), |rate| format!(" of {rate:.0} asked for"));
        writeln!(f, "  rate      {:.0} /s{asked}", self.rate)?;
        let mut requests = format!("{} in {:.1} s", self.count, self.seconds);
        let rare: [(u64, &str); 4] = [
            (self.errors, "errors"),
            (self.misses, "misses"),
            (self.unanswered as u64, "unanswered"),
            (self.reconnects, "reconnects"),
        ];
        for (i, (count, name)) in rare.into_iter().enumerate() {
            // Errors are always said: that there were none is news.
            if i == 0 || count > 0 {
                write!(requests, ", {count} {name}")?;
            }
        }
        writeln!(f, "  requests  {requests}")?;
        if self.count == 0 {
            return Ok(());
        }
        let Quantiles {
            p50,
            p90,
            p99,
            p999,
            max,
            ..
        } = self.latency_ns;
        let from = if self.lag_ns.is_some() {
            "from due to answered"
        } else {
            "from sent to answered"
        };
        let shown = [
            ("p50", p50),
            ("p90", p90),
            ("p99", p99),
            ("p99.9", p999),
            ("max", max),
        ]
        .map(|(name, ns)| format!("{name} {}", Nanos(ns)));
        writeln!(f, "  latency   {}  ({from})", shown.join("  "))?;
        let Some(lag) = &self.lag_ns else {
            return Ok(());
        };
        let shown = [("p50", lag.p50), ("p99", lag.p99), ("max", lag.max)]
            .map(|(name, ns)| format!("{name} {}", Nanos(ns)));
        writeln!(
            f,
            "  own lag   {}  (from due until the generator issued it)",
            shown.join("  ")
        )?;
        if self.generator_trouble() {
            writeln!(
                f,
                "  The generator itself was late: part of the latency is its own. \
                 Give it a CPU of its own (--cpu, --spin) or priority (chrt -f 50)."
            )?;
        }
        Ok(())
    }
}

/// One line.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain numbers and strings")
}

#[cfg(test)]
mod tests;
