//! What is pushed comes back.

use parquet::record::Field;
use proptest::collection::vec;
use proptest::prelude::*;
use tailscope_trace::{
    Cause, CauseSet, Counter, Existing, LedgerWriter, Link, Metadata, Sealing, SpanName, SpanRow,
    Summary,
};

use crate::sample;

/// Names whose order of interning, lengths and alphabets differ.
const NAMES: [&str; 4] = ["recv..send", "get", "", "ünïcode/名"];

/// Writes the rows (with the index of their name) and holds what is read against them.
fn round_trip(rows: &[(usize, SpanRow)], measured: CauseSet, sealing: Sealing) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = LedgerWriter::create(
        folder.path(),
        sample::metadata(),
        measured,
        sealing,
        Existing::Refuse,
    )
    .unwrap();
    let names: Vec<SpanName> = NAMES.iter().map(|name| writer.intern(name)).collect();
    let rows: Vec<_> = rows
        .iter()
        .map(|(name, row)| SpanRow {
            span: names[*name],
            cause_by: row.cause_ns.map(|ns| blamed(ns, &names)),
            ..row.clone()
        })
        .collect();
    rows.iter().for_each(|row| writer.push(row).unwrap());
    let totals = writer.finish(Summary::default()).unwrap();
    assert_eq!(totals.rows, rows.len() as u64);

    let (info, files) = (sample::info(folder.path()), sample::sealed(folder.path()));
    assert_eq!(info["state"], "done");
    assert_eq!(info["files"], files.len());
    assert_eq!(sample::count_rows(folder.path()), rows.len() as u64);
    let mut stored: Vec<_> = sample::rows(folder.path()).collect();
    // Files of different hours are listed by hour and not by age: the number is in the id.
    if files.len() > 1 {
        stored.sort_by_key(|row| match sample::of(row, "id") {
            Field::Long(id) => *id,
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(stored.len(), rows.len());
    for (stored, pushed) in stored.iter().zip(&rows) {
        sample::assert_same(stored, pushed, &NAMES, measured);
    }
}

/// Somebody for most times, no time's always the same.
fn blamed(ns: i64, names: &[SpanName]) -> Option<SpanName> {
    names.get(ns.rem_euclid(5) as usize).copied()
}

/// Mostly what occurs, now and then what can't be: the writer takes every row it is given.
fn any_ns() -> impl Strategy<Value = i64> {
    prop_oneof![4 => Just(0), 4 => 1..100_000i64, 1 => any::<i64>()]
}

fn any_row() -> impl Strategy<Value = (usize, SpanRow)> {
    let identity = prop_oneof![8 => 0..5i32, 1 => any::<i32>()];
    (
        0..NAMES.len(),
        prop_oneof![8 => sample::START_NS..sample::START_NS + 1_000_000, 1 => any::<i64>()],
        any::<Option<i64>>(),
        [identity.clone(), identity.clone(), identity],
        any_ns(),
        prop_oneof![Just(1.0), Just(12.5), any::<f64>()],
        // Sparse as they are, so that both ways of writing causes are taken.
        vec((0..Cause::COUNT, any_ns(), any::<u8>()), 0..4),
        any_ns(),
        prop_oneof![4 => Just(0), 1 => any::<u32>()],
    )
        .prop_map(
            |(name, start_ns, id, [pid, tid, cpu], wall_ns, weight, causes, softirq, others)| {
                let mut row = SpanRow {
                    start_ns,
                    id,
                    pid,
                    tid,
                    cpu,
                    wall_ns,
                    weight,
                    others,
                    ..SpanRow::default()
                };
                row.cause_ns[Cause::SoftirqNet.index()] = softirq;
                row.cause_n[Cause::SoftirqNet.index()] = u32::from(softirq != 0);
                for (cause, ns, n) in causes {
                    row.cause_ns[cause] = ns;
                    row.cause_n[cause] = u32::from(n);
                }
                (name, row)
            },
        )
}

fn any_set() -> impl Strategy<Value = CauseSet> {
    proptest::sample::subsequence(Cause::ALL.to_vec(), 0..=Cause::COUNT)
        .prop_map(|causes| causes.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_rows_come_back_from_one_file(rows in vec(any_row(), 0..700), measured in any_set()) {
        round_trip(&rows, measured, Sealing::default());
    }

    #[test]
    fn any_rows_come_back_from_many_files(
        mut rows in vec(any_row(), 0..300),
        max_rows in 1..200u64,
    ) {
        rows.iter_mut().enumerate().for_each(|(number, row)| row.1.id = Some(number as i64));
        round_trip(&rows, CauseSet::ALL, sample::every(max_rows));
    }
}

#[test]
fn counters_come_back_where_they_were_counted() {
    let folder = tempfile::tempdir().unwrap();
    let counter = |column: &str, counted| Counter {
        column: column.to_owned(),
        event: column.to_owned(),
        counted,
    };
    let metadata = Metadata {
        counters: vec![
            counter("instructions", true),
            counter("cycles", true),
            counter("r1", false),
        ],
        ..sample::metadata()
    };
    let mut writer = LedgerWriter::create(
        folder.path(),
        metadata,
        CauseSet::ALL,
        Sealing::default(),
        Existing::Refuse,
    )
    .unwrap();
    let span = writer.intern("get");
    for number in 0..100 {
        let mut row = SpanRow {
            span,
            ..SpanRow::default()
        };
        if number % 2 == 0 {
            row.counts.push(0, number);
        }
        row.counts.push(1, -number);
        row.counts.push(9, 1); // there is no such counter
        writer.push(&row).unwrap();
    }
    writer.finish(Summary::default()).unwrap();

    assert_eq!(sample::count_rows(folder.path()), 100);
    let counters = &sample::info(folder.path())["counters"];
    assert_eq!(counters.as_array().unwrap().len(), 3);
    for (number, row) in (0..).zip(sample::rows(folder.path())) {
        let even = sample::long((number % 2 == 0).then_some(number));
        assert_eq!(*sample::of(&row, "instructions"), even);
        assert_eq!(*sample::of(&row, "cycles"), Field::Long(-number));
        assert_eq!(*sample::of(&row, "r1"), Field::Null);
    }
}

#[test]
fn links_come_back_where_a_row_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let metadata = Metadata {
        links: vec![Link::Connection, Link::TraceLow],
        ..sample::metadata()
    };
    let (sealing, existing) = (Sealing::default(), Existing::Refuse);
    let mut writer =
        LedgerWriter::create(folder.path(), metadata, CauseSet::ALL, sealing, existing).unwrap();
    let span = writer.intern("GET /");
    // The numbers of connections look random.
    let scatter = |number: i64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
    for number in 0..100 {
        let mut links = [None; Link::COUNT];
        links[Link::Connection.index()] = Some(scatter(number));
        links[Link::TraceLow.index()] = (number % 2 == 0).then_some(-number);
        links[Link::AskedNs.index()] = Some(1); // this ledger has no such column
        let row = SpanRow {
            span,
            links,
            ..SpanRow::default()
        };
        writer.push(&row).unwrap();
    }
    writer.finish(Summary::default()).unwrap();
    for (number, row) in (0..).zip(sample::rows(folder.path())) {
        assert_eq!(
            *sample::of(&row, "connection"),
            Field::Long(scatter(number))
        );
        let even = sample::long((number % 2 == 0).then_some(-number));
        assert_eq!(*sample::of(&row, "trace_low"), even);
    }
}

#[test]
fn row_groups_follow_each_other_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), Sealing::default());
    sample::push_rows(&mut writer, 0..200_001);
    writer.finish(Summary::default()).unwrap();
    assert_eq!(sample::sealed(folder.path()).len(), 1);
    assert!(sample::numbers(folder.path()).into_iter().eq(0..200_001));
}

#[test]
fn columns_of_too_many_values_for_a_dictionary_come_back() {
    // Runs, single values and more than 2,048 different ones, in every column that has a
    // dictionary otherwise; the cause of number 0 strikes all rows, that of number 1 few.
    let rows: Vec<_> = (0..30_000i32)
        .map(|number| {
            let many = if number % 100 < 50 {
                number / 100
            } else {
                number * 7
            };
            let mut row = SpanRow {
                pid: many,
                tid: -many,
                cpu: many,
                weight: 1.0 + f64::from(many) / 3.0,
                ..SpanRow::default()
            };
            row.cause_ns[0] = 1;
            row.cause_n[0] = number as u32;
            if number % 9 == 0 {
                row.cause_ns[1] = i64::MAX - i64::from(number);
                row.cause_n[1] = u32::MAX - number as u32;
            }
            (0, row)
        })
        .collect();
    round_trip(&rows, CauseSet::ALL, Sealing::default());
}

#[test]
fn thousands_of_names_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), Sealing::default());
    for number in 0..5_000 {
        let span = writer.intern(&format!("name {number}"));
        assert_eq!(span.index(), number);
        assert_eq!(writer.intern(&format!("name {number}")), span);
        let mut row = SpanRow {
            span,
            ..SpanRow::default()
        };
        row.cause_ns[0] = 1;
        row.cause_by[0] = Some(span);
        writer.push(&row).unwrap();
    }
    writer.finish(Summary::default()).unwrap();
    for (number, row) in sample::rows(folder.path()).enumerate() {
        let name = sample::text(&format!("name {number}"));
        assert_eq!(*sample::of(&row, "span"), name);
        assert_eq!(*sample::of(&row, "runqueue_by"), name);
        assert_eq!(*sample::of(&row, "preempted_by"), Field::Null);
    }
}
