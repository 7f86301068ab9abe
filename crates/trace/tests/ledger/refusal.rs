//! What is refused, and in which words.

use std::fs;
use std::path::{Path, PathBuf};

use tailscope_trace::{
    CauseSet, Error, Existing, LEDGER_JSON, LedgerWriter, Sealing, SpanRow, Summary,
};

use crate::sample;

/// A finished ledger of a thousand rows, and its only file.
fn ledger(folder: &Path) -> PathBuf {
    let mut writer = sample::create(folder, Sealing::default());
    sample::push_rows(&mut writer, 0..1_000);
    writer.finish(Summary::default()).unwrap();
    sample::sealed(folder).remove(0)
}

fn create(folder: &Path, existing: Existing) -> Result<LedgerWriter, Error> {
    let sealing = Sealing::default();
    LedgerWriter::create(folder, sample::metadata(), CauseSet::ALL, sealing, existing)
}

#[test]
fn a_ledger_is_not_overwritten_unasked() {
    let folder = tempfile::tempdir().unwrap();
    ledger(folder.path());
    let error = create(folder.path(), Existing::Refuse).err().unwrap();
    assert!(matches!(error, Error::Exists { .. }));
    assert!(
        error
            .to_string()
            .ends_with("already holds a ledger: choose another folder, or ask to overwrite it")
    );
    assert_eq!(sample::count_rows(folder.path()), 1_000);

    // Without its ledger.json it is still somebody's data.
    fs::remove_file(folder.path().join(LEDGER_JSON)).unwrap();
    assert!(matches!(
        create(folder.path(), Existing::Refuse),
        Err(Error::Exists { .. })
    ));
}

#[test]
fn overwriting_removes_the_ledger_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = ledger(folder.path());
    fs::write(file.with_extension("parquet.tmp"), "left by a crash").unwrap();
    fs::write(file.with_file_name("notes.txt"), "mine").unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = ledger(elsewhere.path());
    std::os::unix::fs::symlink(
        elsewhere.path().join("host=db1"),
        folder.path().join("host=db2"),
    )
    .unwrap();

    create(folder.path(), Existing::Overwrite).unwrap();
    fs::remove_file(folder.path().join("host=db2")).unwrap();
    assert_eq!(
        sample::files(folder.path()),
        [
            "host=db1/hour=2026-11-20T23/notes.txt",
            "ledger.json",
            "notes.txt"
        ]
    );
    assert!(other.exists());
}

#[test]
fn a_ledger_without_rows_has_no_files() {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), Existing::Refuse)
        .unwrap()
        .finish(Summary::default())
        .unwrap();
    assert_eq!(sample::files(folder.path()), [LEDGER_JSON]);
}

#[test]
fn a_name_of_another_writer_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), Sealing::default());
    let error = writer.push(&SpanRow::default()).unwrap_err();
    assert!(
        matches!(error, Error::UnknownName { index: 0, known: 0 }),
        "{error}"
    );
}
