//! What the tests write, and how they look at what came of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tailscope_trace::read::{Ledger, StoredSpan};
use tailscope_trace::{
    Cause, CauseSet, Clock, Existing, LedgerWriter, Machine, Metadata, Rung, Sealing, SpanName,
    SpanRow,
};

/// 2026-11-20 23:00 UTC.
pub const START_NS: i64 = 1_795_215_600_000_000_000;

pub fn metadata() -> Metadata {
    let rung = |rung: Option<&str>, why: &str| Rung {
        rung: rung.map(str::to_owned),
        why: why.to_owned(),
    };
    Metadata {
        tailscope: "0.1.0".to_owned(),
        started_ns: START_NS,
        machine: Machine {
            host: "db1".to_owned(),
            kernel: "6.18.0".to_owned(),
            arch: "x86_64".to_owned(),
            cpus: 2,
            model: "Some CPU @ 2 GHz".to_owned(),
        },
        clock: Clock {
            source: "tsc".to_owned(),
            hz: 2e9,
        },
        command: vec!["record".to_owned(), "-p".to_owned(), "4711".to_owned()],
        spans: vec!["syscall:recv..send".to_owned()],
        sample: 1.0,
        keep: 0.25,
        tail: Some(0.99),
        budget: Some(100_000),
        ladder: [
            (
                "fault".to_owned(),
                rung(Some("tracepoint+software event"), "fentry refused: EPERM"),
            ),
            ("steal".to_owned(), rung(None, "no steal clock is exported")),
        ]
        .into(),
        counters: Vec::new(),
    }
}

pub fn every(rows: u64) -> Sealing {
    Sealing {
        max_rows: rows,
        max_age: Duration::from_secs(10),
    }
}

pub fn create(folder: &Path, sealing: Sealing) -> LedgerWriter {
    LedgerWriter::create(folder, metadata(), CauseSet::ALL, sealing, Existing::Refuse).unwrap()
}

/// The row of that number: what is different from row to row, and tells it from the others.
pub fn row(span: SpanName, number: i64) -> SpanRow {
    let mut row = SpanRow {
        start_ns: START_NS + number * 20_000,
        span,
        id: (number % 3 == 0).then_some(number),
        pid: 4_711,
        tid: 4_712 + (number % 4) as i32,
        cpu: (number / 5 % 2) as i32,
        wall_ns: 10_000 + number * 7_919 % 5_000,
        ..SpanRow::default()
    };
    row.cause_ns[8] = 1_000 + number * 31 % 997;
    row.cause_n[8] = 1;
    if number % 97 == 0 {
        row.cause_ns[3] = 123_456;
        row.cause_n[3] = 2;
    }
    row
}

pub fn push_rows(writer: &mut LedgerWriter, numbers: std::ops::Range<i64>) {
    let span = writer.intern("recv..send");
    for number in numbers {
        writer.push(&row(span, number)).unwrap();
    }
}

/// The numbers of the ledger's rows; each row must be the one of its number.
pub fn numbers(ledger: &Ledger) -> Vec<i64> {
    let number = |stored: StoredSpan| {
        let number = (stored.start_ns - START_NS) / 20_000;
        assert_same(
            &stored,
            &row(SpanName::default(), number),
            "recv..send",
            &["recv..send"],
            CauseSet::ALL,
        );
        number
    };
    ledger
        .rows()
        .unwrap()
        .map(|row| number(row.unwrap()))
        .collect()
}

/// `names`: those that were interned, in their order.
pub fn assert_same(
    stored: &StoredSpan,
    pushed: &SpanRow,
    name: &str,
    names: &[&str],
    measured: CauseSet,
) {
    let measured = |index: usize| measured.bits() & 1 << index != 0;
    let expected = StoredSpan {
        others: None,
        start_ns: pushed.start_ns,
        span: name.into(),
        id: pushed.id,
        pid: pushed.pid.into(),
        tid: pushed.tid.into(),
        cpu: pushed.cpu.into(),
        wall_ns: pushed.wall_ns,
        weight: pushed.weight,
        cause_ns: std::array::from_fn(|i| measured(i).then_some(pushed.cause_ns[i])),
        cause_n: std::array::from_fn(|i| measured(i).then_some(pushed.cause_n[i].into())),
        cause_by: std::array::from_fn(|i| {
            let struck = measured(i) && (pushed.cause_ns[i] != 0 || pushed.cause_n[i] != 0);
            let by = pushed.cause_by[i].filter(|_| struck && Cause::ALL[i].has_culprits());
            by.map(|by| names[by.index() as usize].into())
        }),
    };
    // NaN is not equal to itself, but has to come back all the same.
    assert_eq!(stored.weight.to_bits(), expected.weight.to_bits());
    assert_eq!(
        StoredSpan {
            weight: 0.0,
            ..stored.clone()
        },
        StoredSpan {
            weight: 0.0,
            ..expected
        }
    );
}

/// Every file under the folder, relative to it and sorted.
pub fn files(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found)
            } else {
                found.push(path)
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, &mut found);
    let relative = |path: &PathBuf| path.strip_prefix(folder).unwrap().display().to_string();
    let mut found: Vec<String> = found.iter().map(relative).collect();
    found.sort();
    found
}
