//! When rows become readable, and what is left of a writer that was not finished.

use std::time::{Duration, Instant};

use tailscope_trace::{Sealing, Summary};

use crate::sample;

#[test]
fn files_are_sealed_by_rows_into_the_hour_of_their_first_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), sample::every(1_000));
    sample::push_rows(&mut writer, 0..2_500);
    // One row of the hour after, in a file of its own.
    writer.seal().unwrap();
    let hour = 3_600_000_000_000 / 20_000;
    sample::push_rows(&mut writer, hour..hour + 1);
    let totals = writer.finish(Summary::default()).unwrap();
    assert_eq!((totals.rows, totals.files), (2_501, 4));
    assert_eq!(
        sample::files(folder.path()),
        [
            "host=db1/hour=2026-11-20T23/000000.parquet",
            "host=db1/hour=2026-11-20T23/000001.parquet",
            "host=db1/hour=2026-11-20T23/000002.parquet",
            "host=db1/hour=2026-11-21T00/000003.parquet",
            "ledger.json",
        ]
    );
    assert!(
        sample::numbers(folder.path())
            .into_iter()
            .eq((0..2_500).chain([hour]))
    );
}

#[test]
fn files_are_sealed_by_age() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), Sealing::default());
    let begin = Instant::now();
    let after = |seconds| begin + Duration::from_secs(seconds);
    let sealed = |writer: &mut tailscope_trace::LedgerWriter| {
        // Sealing is in the background: this waits for it, and has nothing of its own to seal.
        writer.seal().unwrap();
        writer.totals().files
    };
    writer.tick(after(0)).unwrap();
    writer.tick(after(60)).unwrap();
    assert_eq!(sealed(&mut writer), 0, "nothing was pushed");

    // The first rows are on disk after a second, those of five seconds after five.
    let mut now = 61;
    for (files, age) in [1, 1, 3, 5, 10, 10].into_iter().enumerate() {
        let first = files as i64 * 20;
        sample::push_rows(&mut writer, first..first + 10);
        writer.tick(after(now)).unwrap();
        sample::push_rows(&mut writer, first + 10..first + 20);
        now += age;
        writer.tick(after(now) - Duration::from_millis(1)).unwrap();
        assert_eq!(
            sample::sealed(folder.path()).len(),
            files,
            "younger than {age} s"
        );
        writer.tick(after(now)).unwrap();
        assert_eq!(sealed(&mut writer), files as u64 + 1, "{age} s old");
    }
    assert_eq!(sample::count_rows(folder.path()), 120);
}

#[test]
fn a_dropped_writer_removes_what_it_did_not_seal() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), Sealing::default());
    sample::push_rows(&mut writer, 0..1_000);
    writer.seal().unwrap();
    // More than a row group, so that there is an unsealed file.
    sample::push_rows(&mut writer, 1_000..80_000);
    assert_eq!(
        sample::files(folder.path()),
        [
            "host=db1/hour=2026-11-20T23/000000.parquet",
            "host=db1/hour=2026-11-20T23/000001.parquet.tmp",
            "ledger.json",
        ]
    );
    drop(writer);
    assert_eq!(
        sample::files(folder.path()),
        ["host=db1/hour=2026-11-20T23/000000.parquet", "ledger.json"]
    );
    assert_eq!(sample::info(folder.path())["state"], "recording");
    assert!(sample::numbers(folder.path()).into_iter().eq(0..1_000));
}
