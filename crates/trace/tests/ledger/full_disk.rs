//! A disk that fills up while a ledger is written.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tailscope_trace::{Error, LedgerWriter, Sealing, Summary, Written};

use crate::sample;

/// A file system of a few hundred KiB, unmounted when it is dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with the reason printed, where this process may not mount.
    fn mount(kib: u32) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args([
                "-t",
                "tmpfs",
                "-o",
                &format!("size={kib}k,mode=700"),
                "tailscope-test",
            ])
            .arg(folder.path())
            .output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk { folder }),
            Ok(output) => {
                let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                eprintln!("SKIPPED: needs to mount a tmpfs (run as root): {why}");
                None
            }
            Err(error) => {
                eprintln!("SKIPPED: needs the command mount: {error}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

/// Pushes until the disk is full; returns how many rows were pushed, and the error.
fn fill(writer: &mut LedgerWriter) -> (i64, Error) {
    let span = writer.intern("recv..send");
    for number in 0..10_000_000 {
        if let Err(error) = writer.push(&sample::row(span, number)) {
            return (number + 1, error);
        }
    }
    panic!("the disk never filled up");
}

fn unsealed_files(folder: &Path) -> Vec<String> {
    sample::files(folder)
        .into_iter()
        .filter(|file| file.ends_with(".tmp"))
        .collect()
}

#[test]
fn a_full_disk_costs_the_unsealed_rows_and_says_so() {
    let Some(disk) = SmallDisk::mount(512) else {
        return;
    };
    let mut writer = sample::create(disk.path(), sample::every(10_000));
    let written = Arc::new(Written::default());
    writer.count_in(Arc::clone(&written));
    let (pushed, error) = fill(&mut writer);
    let Error::Full {
        lost_rows, path, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert!(error.to_string().contains("no space left"), "{error}");
    assert!(!path.exists());
    assert!(*lost_rows > 0 && *lost_rows == writer.lost_rows());
    writer.seal().unwrap();
    assert_eq!(unsealed_files(disk.path()), Vec::<String>::new());
    assert_eq!(writer.totals().rows + writer.lost_rows(), pushed as u64);

    let files = sample::sealed(disk.path());
    assert!(files.len() > 1);
    let sealed = sample::count_rows(disk.path());
    assert!(
        sample::numbers(disk.path())
            .into_iter()
            .eq(0..sealed as i64)
    );

    // With space again the same writer goes on.
    fs::remove_file(&files[0]).unwrap();
    sample::push_rows(&mut writer, 0..100);
    let lost = writer.lost_rows();
    let totals = writer.finish(Summary::default()).unwrap();
    assert_eq!((written.bytes(), written.lost_rows()), (totals.bytes, lost));
    let info = sample::info(disk.path());
    assert_eq!(info["state"], "done");
    assert_eq!(info["lost"]["unwritten"], lost);
    assert_eq!(sample::count_rows(disk.path()), sealed - 10_000 + 100);
}

#[test]
fn a_disk_that_fills_up_at_the_end_leaves_a_finished_ledger() {
    let Some(disk) = SmallDisk::mount(128) else {
        return;
    };
    let mut writer = sample::create(disk.path(), Sealing::default());
    let written = Arc::new(Written::default());
    writer.count_in(Arc::clone(&written));
    sample::push_rows(&mut writer, 0..50_000);
    let error = writer.finish(Summary::default()).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Full {
                lost_rows: 50_000,
                ..
            }
        ),
        "{error}"
    );
    let info = sample::info(disk.path());
    assert_eq!(info["state"], "done");
    assert_eq!((&info["rows"], &info["files"]), (&0.into(), &0.into()));
    assert_eq!(info["lost"]["unwritten"], 50_000);
    assert_eq!(written.lost_rows(), 50_000);
    assert_eq!(sample::files(disk.path()), ["ledger.json"]);
}

#[test]
fn a_folder_on_a_full_disk_is_refused() {
    let Some(disk) = SmallDisk::mount(64) else {
        return;
    };
    let mut ballast = fs::File::create(disk.path().join("ballast")).unwrap();
    assert!(std::io::copy(&mut std::io::repeat(1), &mut ballast).is_err());
    let created = LedgerWriter::create(
        disk.path().join("ledger"),
        sample::metadata(),
        tailscope_trace::CauseSet::ALL,
        Sealing::default(),
        tailscope_trace::Existing::Refuse,
    );
    assert!(matches!(
        created.err(),
        Some(Error::Full { lost_rows: 0, .. })
    ));
}
