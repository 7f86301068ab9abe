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
    report.percentiles.truncate(1);
    report.buckets.clear();
    report.served_buckets.clear();
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
        }
      ],
      "buckets": [],
      "served_buckets": []
    }
    "#);
}

#[test]
fn the_distributions_are_told_as_a_whole() {
    let report = Report::of("memcached 127.0.0.1:11211".to_owned(), &plan(), &outcome());
    let counted: u64 = report.buckets.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, report.count);
    assert_eq!(report.buckets[..2], [(20015, 126), (20031, 52)]);
    assert_eq!(report.served_buckets[0], (14007, 89));
    assert!(json(&report).contains("\"buckets\":[[20015,126],[20031,52],"));
    let steps = report.percentiles.iter().take(3);
    let steps: Vec<_> = steps
        .map(|step| (step.percentile, step.value_ns, step.count))
        .collect();
    assert_eq!(
        steps,
        [(0.0, 20015, 126), (10.0, 21007, 1003), (20.0, 24015, 2003)]
    );
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
