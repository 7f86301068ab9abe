use tailscope_locality::profile::unseen::Lines;
use tailscope_locality::sampler::{Counts, Visits, WatchCounts};

use super::*;

fn about(value: f64) -> Share {
    Share {
        value,
        low: Some(value - 0.01),
        high: Some(value + 0.01),
    }
}

fn line(sharing: Sharing) -> HotLine {
    let user = |tid, first| LineUser {
        tid,
        name: format!("worker-{tid}"),
        reads: 0,
        writes: 1234,
        bytes: [first, first + 8],
        fields: vec![LineField {
            name: format!("falsely_shared[{}]", first / 8),
            kind: "long int".into(),
            bytes: [first, first + 8],
            accesses: 1234,
        }],
    };
    HotLine {
        address: "0x5640".into(),
        what: "falsely_shared+0x0".into(),
        time: about(0.25),
        samples: 900,
        sharing,
        users: (1..=6).map(|tid| user(tid, 8 * (tid - 1))).collect(),
        functions: vec!["update".into()],
        watched: [3, 0],
    }
}

fn made() -> Report {
    Report {
        pid: 4711,
        phase: Some("update".into()),
        seconds: 10.0,
        period_ns: 2_000_000,
        own_cpu_seconds: 0.5,
        counts: Counts {
            samples: 1000,
            in_kernel: 100,
            resolved: 450,
            in_phase: 300,
            accesses: 9000,
            unresolved: vec![(Unresolved::Register, 700), (Unresolved::Gather, 0)],
            ends: vec![(End::Branch, 300), (End::Steps, 600)],
            ..Counts::default()
        },
        watch: WatchCounts::default(),
        visits: Visits::default(),
        distance: None,
        demands: None,
        lines: Lines {
            seen: 500,
            once: 10,
            estimate: 512.0,
            low: 505.0,
            high: 530.0,
            coverage: 0.99,
        },
        groups: vec![Group {
            phase: PhaseScope::Global,
            session: SessionScope::Global,
            lines: about(0.5),
            time: about(0.6),
            updates: None,
        }],
        functions: Vec::new(),
        threads: Vec::new(),
        hot: vec![line(Sharing::Private)],
        contended: vec![line(Sharing::False)],
        members_complete: true,
    }
}

#[test]
fn what_was_not_seen_comes_before_the_figures() {
    let text = report(&made(), 100);
    let place = |words: &str| {
        text.find(words)
            .unwrap_or_else(|| panic!("no {words}: {text}"))
    };
    let kernel = place("10.0 % of all samples were in the kernel");
    let known = place("50.0 % of the samples in user space have one");
    let reasons = place("700 accesses on the way have no known address: 700 depend on a value");
    let ends = place("Walks from samples ended: 33.3 % at an unknown branch, 66.7 % after");
    let set = place("500 lines were seen, at least 512 exist (95 % interval 505 to 530): 32.0 KiB");
    assert!(known < kernel && kernel < reasons && reasons < ends && ends < set);
    assert!(!text.contains("gathers") && !text.contains("Lost:"));
    assert!(text.contains("in both, several threads"));
}

#[test]
fn a_falsely_shared_line_names_threads_and_bytes() {
    let text = report(&made(), 100);
    assert!(text.contains("falsely_shared+0x0  25.0 % (±1.0)  FALSE SHARING"));
    assert!(text.contains(
        "worker-2 (2): 0 loads, 1,234 stores, bytes 8 to 15: falsely_shared[1] (long int)"
    ));
    assert!(text.contains("and 2 more threads"));
    assert!(text.contains("watched 3 times: several threads touched the word 0 times"));
}

#[test]
fn losses_are_shown_and_nothing_is_shown_without_accesses() {
    let mut report = made();
    report.counts.lost = 12;
    report.counts.threads_left_out = 3;
    report.watch.stopped = Some("a debugger has the debug registers".into());
    let text = super::report(&report, 100);
    assert!(text.contains("Lost: 12 samples found a ring full, 3 threads were not sampled."));
    assert!(text.contains("given up: a debugger"));
    report.counts.accesses = 0;
    assert!(!super::report(&report, 100).contains("Working set"));
    report.counts.accesses = 1;
    report.contended.clear();
    assert!(super::report(&report, 100).contains("at least one writes: none was seen"));
}

#[test]
fn a_long_name_is_cut() {
    assert_eq!(cut("abcdef", 4), "abc…");
    assert_eq!(cut("abcd", 4), "abcd");
}
