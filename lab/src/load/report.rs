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
mod tests {
    use super::*;
    use crate::load::protocol::Verdict;
    use crate::load::tally::Request;

    fn outcome() -> Outcome {
        let mut tally = Tally::of_window(Nanos(0), Nanos(1_000_000_000));
        for i in 1..=10_000u64 {
            tally.turned_to(Nanos(i), Nanos(i + 900 + i % 100));
            let verdict = if i % 1_000 == 0 {
                Verdict::Miss
            } else {
                Verdict::Ok
            };
            let request = Request {
                due: Nanos(i),
                sent: Nanos(i + 1_000),
            };
            let read = Nanos(i + i * i / 1_000 + 20_000);
            tally.answered(request, read - Nanos(5_000), read, verdict);
        }
        Outcome {
            tally,
            unanswered: 3,
            interrupted: false,
            failure: None,
        }
    }

    fn plan() -> Plan {
        Plan {
            address: ([127, 0, 0, 1], 11211).into(),
            pace: Pace::Open { rate: 10_000.0 },
            connections: 8,
            depth: 1,
            fresh: false,
            warmup: Nanos(0),
            duration: Nanos(1_000_000_000),
            report_every: None,
            spin: false,
            seed: 1,
        }
    }

    #[test]
    fn a_person_reads_this() {
        let report = Report::of("memcached 127.0.0.1:11211".to_owned(), &plan(), &outcome());
        insta::assert_snapshot!(report.to_string(), @r#"
        memcached 127.0.0.1:11211: open loop, 8 connections
          rate      10000 /s of 10000 asked for
          requests  10000 in 1.0 s, 0 errors, 10 misses, 3 unanswered
          latency   p50 45.0 µs  p90 101 µs  p99 118 µs  p99.9 120 µs  max 120 µs  (from due to answered)
          own lag   p50 949 ns  p99 998 ns  max 999 ns  (from due until the generator issued it)
        "#);
    }

    #[test]
    fn a_machine_reads_this() {
        let mut report = Report::of("memcached 127.0.0.1:11211".to_owned(), &plan(), &outcome());
        let counted: u64 = report.buckets.iter().map(|(_, count)| count).sum();
        assert_eq!(counted, report.count);
        report.buckets.truncate(2);
        report.served_buckets.truncate(1);
        report.percentiles.truncate(3);
        let pretty = serde_json::to_string_pretty(&report).expect("plain numbers and strings");
        insta::assert_snapshot!(pretty, @r#"
        {
          "kind": "run",
          "target": "memcached 127.0.0.1:11211",
          "mode": "open",
          "connections": 8,
          "depth": 1,
          "fresh": false,
          "seconds": 1.0,
          "rate_asked": 10000.0,
          "rate": 10000.0,
          "count": 10000,
          "errors": 0,
          "misses": 10,
          "unanswered": 3,
          "reconnects": 0,
          "interrupted": false,
          "failure": null,
          "latency_ns": {
            "min": 20000,
            "mean": 53338.6,
            "p50": 45023,
            "p90": 101055,
            "p99": 118015,
            "p999": 119807,
            "max": 120063
          },
          "served_ns": {
            "min": 14000,
            "mean": 47338.5,
            "p50": 39007,
            "p90": 95039,
            "p99": 112063,
            "p999": 113855,
            "max": 114047
          },
          "lag_ns": {
            "min": 900,
            "mean": 949.5,
            "p50": 949,
            "p90": 989,
            "p99": 998,
            "p999": 999,
            "max": 999
          },
          "percentiles": [
            {
              "percentile": 0.0,
              "value_ns": 20015,
              "count": 126
            },
            {
              "percentile": 10.0,
              "value_ns": 21007,
              "count": 1003
            },
            {
              "percentile": 20.0,
              "value_ns": 24015,
              "count": 2003
            }
          ],
          "buckets": [
            [
              20015,
              126
            ],
            [
              20031,
              52
            ]
          ],
          "served_buckets": [
            [
              14007,
              89
            ]
          ]
        }
        "#);
    }

    #[test]
    fn a_run_without_replies_is_no_panic() {
        let outcome = Outcome {
            tally: Tally::of_window(Nanos(5), Nanos(5)),
            unanswered: 0,
            interrupted: true,
            failure: Some(anyhow::anyhow!("lost the connection")),
        };
        let report = Report::of("http 127.0.0.1:80".to_owned(), &plan(), &outcome);
        assert!(report.to_string().contains("0 in 0.0 s"));
        assert!(json(&report).contains("lost the connection"));
    }
}
