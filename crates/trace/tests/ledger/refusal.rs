//! What is refused, and in which words.

use std::fs;
use std::path::{Path, PathBuf};

use tailscope_trace::read::{Ledger, LedgerFile};
use tailscope_trace::{
    Cause, CauseSet, Error, Existing, LEDGER_JSON, LedgerWriter, Sealing, SpanRow, Summary,
};

use crate::sample;

/// A finished ledger of a thousand rows, and its only file.
fn ledger(folder: &Path) -> PathBuf {
    let mut writer = sample::create(folder, Sealing::default());
    sample::push_rows(&mut writer, 0..1_000);
    writer.finish(Summary::default()).unwrap();
    Ledger::open(folder).unwrap().files()[0].clone()
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
    assert_eq!(
        Ledger::open(folder.path()).unwrap().count_rows().unwrap(),
        1_000
    );

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
fn a_folder_without_ledger_json_is_no_ledger() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("missing")] {
        let error = Ledger::open(&path).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{} is not a ledger: it has no ledger.json", path.display())
        );
    }
}

#[test]
fn a_ledger_without_sealed_files_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    create(folder.path(), Existing::Refuse)
        .unwrap()
        .finish(Summary::default())
        .unwrap();
    let ledger = Ledger::open(folder.path()).unwrap();
    assert_eq!(ledger.count_rows().unwrap(), 0);
    assert!(matches!(ledger.rows().err(), Some(Error::Empty { .. })));
}

#[test]
fn a_newer_or_broken_ledger_json_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join(LEDGER_JSON);
    fs::write(&json, r#"{"schema": 2, "all": "else"}"#).unwrap();
    let error = Ledger::open(folder.path()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Newer {
                schema: 2,
                known: 1,
                ..
            }
        ),
        "{error}"
    );
    for text in ["", "{", "[]", r#"{"schema": 1}"#] {
        fs::write(&json, text).unwrap();
        let error = Ledger::open(folder.path()).unwrap_err();
        assert!(matches!(error, Error::Info { .. }), "{text}: {error}");
    }
}

#[test]
fn a_ledger_without_a_state_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    ledger(folder.path());
    let json = folder.path().join(LEDGER_JSON);
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replace("  \"state\": \"done\",\n", "")).unwrap();
    assert_eq!(Ledger::open(folder.path()).unwrap().info().state, None);
}

#[test]
fn a_file_cut_off_anywhere_is_truncated() {
    let folder = tempfile::tempdir().unwrap();
    let file = ledger(folder.path());
    let whole = fs::read(&file).unwrap();
    let end = whole.len() - 100;
    for length in (0..end).step_by(41).chain(end..whole.len()) {
        fs::write(&file, &whole[..length]).unwrap();
        let error = Ledger::open(folder.path())
            .unwrap()
            .count_rows()
            .unwrap_err();
        assert!(
            matches!(error, Error::Truncated { .. }),
            "{length}: {error}"
        );
    }
    let mut rows = Ledger::open(folder.path()).unwrap().rows().unwrap();
    assert!(matches!(rows.next(), Some(Err(Error::Truncated { .. }))));
    assert!(rows.next().is_none(), "the iterator ends after an error");
}

#[test]
fn a_foreign_file_is_told_from_a_truncated_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("foreign.parquet");
    fs::write(&path, "start_ns,wall_ns\n1,2\n").unwrap();
    let error = LedgerFile::open(&path).err().unwrap();
    assert!(
        error
            .to_string()
            .ends_with("it is not in the Parquet format"),
        "{error}"
    );

    let schema = parquet::schema::parser::parse_message_type(
        "message other { required int64 start_ns; required int64 span; }",
    )
    .unwrap();
    let file = fs::File::create(&path).unwrap();
    parquet::file::writer::SerializedFileWriter::new(file, schema.into(), Default::default())
        .and_then(|writer| writer.close())
        .unwrap();
    let error = LedgerFile::open(&path).err().unwrap();
    assert!(matches!(error, Error::Foreign { .. }));
    assert!(
        error
            .to_string()
            .ends_with("its column span is not a plain BYTE_ARRAY"),
        "{error}"
    );
}

#[test]
fn a_file_from_before_culprits_were_kept_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.parquet");
    let identity = ["start_ns", "pid", "tid", "cpu", "wall_ns"].map(str::to_owned);
    let causes = Cause::ALL.map(|cause| [format!("{cause}_ns"), format!("{cause}_n")]);
    let numbers: Vec<_> = identity.into_iter().chain(causes.concat()).collect();
    let numbers: String = numbers
        .iter()
        .map(|name| format!("required int64 {name}; "))
        .collect();
    let schema = format!(
        "message span {{ required binary span (UTF8); optional int64 id; required double weight; {numbers}}}"
    );
    let schema = parquet::schema::parser::parse_message_type(&schema).unwrap();
    let file = fs::File::create(&path).unwrap();
    parquet::file::writer::SerializedFileWriter::new(file, schema.into(), Default::default())
        .and_then(|writer| writer.close())
        .unwrap();
    let file = LedgerFile::open(&path).unwrap();
    assert_eq!(file.rows_in_file(), 0);
    assert_eq!(file.rows().unwrap().count(), 0);
}

#[test]
fn damaged_contents_are_an_error_and_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let file = ledger(folder.path());
    let whole = fs::read(&file).unwrap();
    let mut damaged_files = 0;
    for position in (4..whole.len() - 8).step_by(61) {
        let mut damaged = whole.clone();
        damaged[position..position + 4].fill(0xff);
        fs::write(&file, &damaged).unwrap();
        let rows = LedgerFile::open(&file).and_then(LedgerFile::rows);
        // Bytes of packed values can be any: not every damage can be seen.
        let error = match rows {
            Ok(mut rows) => rows.find_map(Result::err),
            Err(error) => Some(error),
        };
        if let Some(error) = error {
            assert!(
                matches!(error, Error::Damaged { .. } | Error::Foreign { .. }),
                "{error}"
            );
            damaged_files += 1;
        }
    }
    assert!(damaged_files > 10, "{damaged_files}");
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
