use tailscope_locality::chase::caches::Caches;
use tailscope_locality::chase::cost::Costs;
use tailscope_locality::chase::levels::Latency;
use tailscope_locality::chase::pair::Pair;

use super::*;

fn interval(low: f64, value: f64, high: f64) -> Option<Interval> {
    Some(Interval { value, low, high })
}

fn point(working_set: u64, updates: f64, ratio: Option<Interval>, line: f64) -> Point {
    let speed = |mode: &'static str, per_second, ratio| Speed {
        mode: mode.into(),
        per_second,
        ratio,
    };
    let delegate = speed("delegate", 2.564e8, ratio);
    Point {
        working_set,
        updates,
        accesses: 1_000,
        rounds: 60,
        segments: 122,
        dropped: 2,
        speeds: vec![speed("sync", 1.46e8, None), delegate],
        line_ns: Some([line, line - 2.0, line + 20.0]),
        visit_ns: Vec::new(),
    }
}

fn made() -> Report {
    let latency = |bytes, ns| Latency { bytes, ns };
    Report {
        cpus: vec![0, 3],
        one_core_by_topology: false,
        pair: Pair {
            beside: interval(0.99, 1.0, 1.01),
            verdict: Verdict::TwoCores,
            line_ns: Some([48.8, 48.6, 83.2]),
        },
        others: Some(0.012),
        caches: Caches {
            l1d: Some(48 << 10),
            l2: Some(2 << 20),
            l3: Some(480 << 20),
        },
        costs: Costs {
            switch_ns: interval(21.0, 21.3, 21.6),
            migration_ns: None,
        },
        latencies: vec![latency(8 << 10, 2.0), latency(8 << 20, 35.0)],
        knees: vec![50_000],
        points: vec![
            point(24 << 10, 0.0, interval(0.71, 0.75, 0.77), 57.0),
            point(24 << 10, 0.01, interval(0.96, 1.0, 1.04), 59.0),
            point(3 << 20, 1.0, None, 412.0),
        ],
        planned: 4,
        sessions: 100,
        seed: 1,
    }
}

#[test]
fn what_makes_figures_doubtful_stands_above_them() {
    insta::assert_snapshot!(report(&made()));
}

#[test]
fn threads_of_one_core_are_said_first() {
    let mut hidden = made();
    hidden.pair.verdict = Verdict::OneCore;
    hidden.pair.beside = interval(0.52, 0.55, 0.58);
    let text = report(&hidden);
    let first: Vec<&str> = text.lines().take(2).collect();
    assert_eq!(
        first[0],
        "CPUs 0 and 3: two cores by the topology. They behave as threads of ONE core: beside each \
         other, 55 % (52 to 58 %) of full speed."
    );
    assert!(first[1].contains("share all caches"));
    hidden.others = Some(0.3);
    assert!(report(&hidden).starts_with("Other programs had these CPUs for 30 %"));
}
