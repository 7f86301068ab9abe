//! A recorder that is killed at any moment.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use tailscope_trace::{CauseSet, Existing, LedgerWriter, Summary};

use crate::{checksum, sample};

/// Set for the child, to the folder that it writes to.
const CHILD: &str = "TAILSCOPE_TRACE_TEST_CHILD";

/// Not a test of its own: what the child of the test below runs.
#[test]
fn a_child_writes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(CHILD).map(PathBuf::from) else {
        return;
    };
    // Small files, so that sealing is going on at most moments.
    let mut writer = sample::create(&folder, sample::every(5_000));
    let span = writer.intern("recv..send");
    println!("\nwriting");
    for number in 0.. {
        writer.push(&sample::row(span, number)).unwrap();
    }
}

#[test]
fn a_killed_writer_leaves_only_readable_files() {
    for delay_ms in [0, 20, 50, 110, 300] {
        let folder = tempfile::tempdir().unwrap();
        kill_child_after(folder.path(), Duration::from_millis(delay_ms));

        assert_eq!(sample::info(folder.path())["state"], "recording");
        let sealed = sample::sealed(folder.path());
        assert!(
            delay_ms <= 100 || !sealed.is_empty(),
            "nothing sealed in {delay_ms} ms"
        );
        for file in &sealed {
            let (told, found) = checksum::told_and_found(file);
            assert_eq!(told, found, "{}", file.display());
        }
        // What is sealed is a whole beginning of what was written.
        let numbers = sample::numbers(folder.path());
        assert_eq!(numbers.len() as u64, sample::count_rows(folder.path()));
        assert!(numbers.into_iter().eq(0..5_000 * sealed.len() as i64));
        let unsealed = sample::files(folder.path())
            .iter()
            .filter(|f| f.ends_with(".tmp"))
            .count();
        println!(
            "{delay_ms} ms: {} sealed, {unsealed} unsealed",
            sealed.len()
        );

        // What it left does not hold up the next recording.
        let mut next = LedgerWriter::create(
            folder.path(),
            sample::metadata(),
            CauseSet::ALL,
            sample::every(5_000),
            Existing::Overwrite,
        )
        .unwrap();
        sample::push_rows(&mut next, 0..10);
        next.finish(Summary::default()).unwrap();
        assert_eq!(
            sample::files(folder.path()),
            ["host=db1/hour=2026-11-20T23/000000.parquet", "ledger.json"]
        );
    }
}

/// Lets a child write for that long after its ledger was begun, and kills it as `kill -9` does.
fn kill_child_after(folder: &Path, delay: Duration) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "crash::a_child_writes_until_it_is_killed",
            "--nocapture",
        ])
        .env(CHILD, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap() == "writing"),
        "the child did not begin"
    );
    std::thread::sleep(delay);
    child.kill().unwrap();
    child.wait().unwrap();
}
