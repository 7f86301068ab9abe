//! Tables beside the rows.

use std::fs::File;

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use tailscope_trace::{
    CauseSet, Existing, Kind, LedgerWriter, STACKS, Sealing, Summary, Value, clear,
};

use crate::sample;

const COLUMNS: &[(&str, Kind)] = &[
    ("number", Kind::Number),
    ("real", Kind::Real),
    ("text", Kind::Text),
];

#[test]
fn a_table_comes_back_and_is_no_part_of_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = LedgerWriter::create(
        folder.path(),
        sample::metadata(),
        CauseSet::default(),
        Sealing::default(),
        Existing::Refuse,
    )
    .unwrap();
    let mut table = ledger.table(STACKS, "things", COLUMNS).unwrap();
    let rows = 70_000; // more than are encoded at a time
    for n in 0..rows {
        let text = format!("text {}", n % 7);
        let row = [
            Value::Number(n - 5),
            Value::Real(0.5 * n as f64),
            Value::Text(&text),
        ];
        table.push(&row).unwrap();
    }
    assert_eq!(table.finish().unwrap().rows, rows as u64);
    ledger.finish(Summary::default()).unwrap();
    assert!(sample::sealed(folder.path()).is_empty(), "they are no rows");

    let path = folder.path().join(STACKS).join("things-00000.pq");
    let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
    let stored = reader.get_row_iter(None).unwrap();
    let mut count = 0;
    for (n, row) in (0..).zip(stored) {
        let row = row.unwrap();
        let fields: Vec<_> = row.get_column_iter().map(|(_, field)| field).collect();
        assert_eq!(fields[0], &Field::Long(n - 5));
        assert_eq!(fields[1], &Field::Double(0.5 * n as f64));
        assert_eq!(fields[2], &Field::Str(format!("text {}", n % 7)));
        count += 1;
    }
    assert_eq!(count, rows);

    clear(folder.path()).unwrap();
    assert!(!path.exists(), "an overwrite removes them");
}
