//! What the tests write, and how they look at what came of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use tailscope_trace::{
    Cause, CauseSet, Clock, Existing, LEDGER_JSON, LedgerWriter, Machine, Metadata, Rung, Sealing,
    SpanName, SpanRow,
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
        links: Vec::new(),
        stacks: None,
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

/// A stored row: its columns in their order on disk. The parquet crate reads it, so that nothing of
/// ours is between a test and what is on disk.
pub type Stored = Vec<(String, Field)>;

/// The contents of `ledger.json`.
pub fn info(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(folder.join(LEDGER_JSON)).unwrap()).unwrap()
}

/// The sealed files, by host, hour and number.
pub fn sealed(folder: &Path) -> Vec<PathBuf> {
    let mut files = files(folder);
    files.retain(|file| file.ends_with(".parquet"));
    files.iter().map(|file| folder.join(file)).collect()
}

/// A sealed file, of which the footer was read.
pub fn open(file: &Path) -> SerializedFileReader<fs::File> {
    SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap()
}

/// How many rows the footers of the sealed files announce.
pub fn count_rows(folder: &Path) -> u64 {
    let rows = |file: &PathBuf| open(file).metadata().file_metadata().num_rows();
    sealed(folder).iter().map(rows).sum::<i64>() as u64
}

/// The rows of every file, file by file, in the order in which they were written.
pub fn rows(folder: &Path) -> impl Iterator<Item = Stored> + use<> {
    let files = sealed(folder).into_iter();
    files.flat_map(|file| {
        open(&file)
            .into_iter()
            .map(|row| row.unwrap().into_columns())
    })
}

/// What stands in a row's column.
pub fn of<'r>(stored: &'r [(String, Field)], column: &str) -> &'r Field {
    let found = stored.iter().find(|(name, _)| name == column);
    &found
        .unwrap_or_else(|| panic!("there is no column {column}"))
        .1
}

/// A number that may be missing.
pub fn long(value: Option<i64>) -> Field {
    value.map_or(Field::Null, Field::Long)
}

/// A text.
pub fn text(value: &str) -> Field {
    Field::Str(value.to_owned())
}

/// The numbers of the ledger's rows; each row must be the one of its number.
pub fn numbers(folder: &Path) -> Vec<i64> {
    let number = |stored: Stored| {
        let Field::Long(start_ns) = stored[0].1 else {
            panic!("{stored:?}")
        };
        let number = (start_ns - START_NS) / 20_000;
        assert_same(
            &stored,
            &row(SpanName::default(), number),
            &["recv..send"],
            CauseSet::ALL,
        );
        number
    };
    rows(folder).map(number).collect()
}

/// The columns of a ledger without hardware counters (docs/reference/schema.md).
static COLUMNS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let first = [
        "start_ns", "span", "id", "pid", "tid", "cpu", "wall_ns", "weight",
    ];
    let causes = Cause::ALL.map(|cause| [format!("{cause}_ns"), format!("{cause}_n")]);
    let blaming = Cause::ALL.into_iter().filter(|cause| cause.blames());
    first
        .into_iter()
        .map(str::to_owned)
        .chain(causes.into_iter().flatten())
        .chain(blaming.map(|cause| format!("{cause}_by")))
        .chain(["others".to_owned()])
        .collect()
});

/// `names`: those that were interned, in their order.
pub fn assert_same(
    stored: &[(String, Field)],
    pushed: &SpanRow,
    names: &[&str],
    measured: CauseSet,
) {
    let named = |name: SpanName| text(names[name.index() as usize]);
    let mut expected = vec![
        Field::Long(pushed.start_ns),
        named(pushed.span),
        long(pushed.id),
        Field::Long(pushed.pid.into()),
        Field::Long(pushed.tid.into()),
        Field::Long(pushed.cpu.into()),
        Field::Long(pushed.wall_ns),
        Field::ULong(pushed.weight.to_bits()),
    ];
    for cause in Cause::ALL {
        let of = |value: i64| long(measured.contains(cause).then_some(value));
        expected.push(of(pushed.cause_ns[cause.index()]));
        expected.push(of(pushed.cause_n[cause.index()].into()));
    }
    for cause in Cause::ALL.into_iter().filter(|c| c.blames()) {
        let at = cause.index();
        let struck = pushed.cause_ns[at] != 0 || pushed.cause_n[at] != 0;
        let by = pushed.cause_by[at].filter(|_| struck && measured.contains(cause));
        expected.push(by.map_or(Field::Null, named));
    }
    expected.push(long((pushed.others > 0).then_some(pushed.others.into())));

    // NaN is not equal to itself, but has to come back all the same.
    let comparable = |field: &Field| match field {
        Field::Double(value) => Field::ULong(value.to_bits()),
        other => other.clone(),
    };
    let found: Vec<_> = stored.iter().map(|(_, field)| comparable(field)).collect();
    assert_eq!(found, expected);
    assert!(stored.iter().map(|(name, _)| name).eq(COLUMNS.iter()));
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
