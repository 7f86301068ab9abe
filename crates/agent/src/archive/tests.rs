use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const NOON: i64 = 1_795_262_400_000_000_000;

/// A ledger of so many bytes.
fn ledger(archive: &mut Archive, unix_ns: i64, bytes: usize) -> PathBuf {
    let path = archive.begin(unix_ns).expect("begun");
    let hour = path.join("host=h/hour=2026-11-21T12");
    fs::create_dir_all(&hour).expect("made");
    fs::write(hour.join("000000.parquet"), vec![0; bytes]).expect("written");
    fs::write(path.join("ledger.json"), "{}").expect("written");
    path
}

fn sealed(archive: &mut Archive, unix_ns: i64, bytes: usize) -> PathBuf {
    let path = ledger(archive, unix_ns, bytes);
    archive.sealed(&path);
    path
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

#[test]
fn the_oldest_go_by_their_numbers_even_where_the_clock_was_set_back() {
    let home = folder();
    let mut archive = Archive::open(home.path()).expect("opened");
    let hour = 3_600_000_000_000;
    let first = sealed(&mut archive, NOON, 1000);
    let second = sealed(&mut archive, NOON - 5 * hour, 1000);
    let third = ledger(&mut archive, NOON - 4 * hour, 1000);
    assert!(first.ends_with("2026-11-21T120000Z-000001"), "{first:?}");
    assert!(archive.shrink(2500).is_empty());
    assert_eq!(
        [first.exists(), second.exists(), third.exists()],
        [false, true, true]
    );
    assert_eq!(archive.holding().removed, 1);
    // What still grows is never removed.
    assert!(archive.shrink(0).is_empty());
    assert_eq!([second.exists(), third.exists()], [false, true]);
}

#[test]
fn what_another_agent_left_counts_and_goes() {
    let home = folder();
    let mut archive = Archive::open(home.path()).expect("opened");
    let old = ledger(&mut archive, NOON, 1000);
    assert!(matches!(
        Archive::open(home.path()),
        Err(ArchiveError::Taken(_))
    ));
    drop(archive);
    let mut archive = Archive::open(home.path()).expect("opened again");
    assert!(archive.holding().bytes > 1000);
    let new = sealed(&mut archive, NOON, 1000);
    assert!(new.ends_with("2026-11-21T120000Z-000002"));
    assert!(archive.shrink(1500).is_empty());
    assert_eq!([old.exists(), new.exists()], [false, true]);
}

#[test]
fn what_no_agent_made_is_never_removed() {
    let (home, elsewhere) = (folder(), folder());
    let precious = elsewhere.path().join("host=h/hour=x");
    fs::create_dir_all(&precious).expect("made");
    fs::write(precious.join("1.parquet"), "precious").expect("written");
    fs::write(elsewhere.path().join(MARK), "").expect("written");
    let names = [
        "2026-11-21T120000Z-000001",
        "2026-11-21T120000Z-000002",
        "notes",
    ];
    symlink(elsewhere.path(), home.path().join(names[0])).expect("linked");
    fs::create_dir(home.path().join(names[1])).expect("made");
    fs::write(home.path().join(names[1]).join("ledger.json"), "{}").expect("written");
    fs::create_dir(home.path().join(names[2])).expect("made");
    fs::write(home.path().join(names[2]).join(MARK), "").expect("written");
    let mut archive = Archive::open(home.path()).expect("opened");
    assert_eq!(archive.holding().ledgers, 0);
    // A ledger with a stranger's file, and one whose partition is a link elsewhere.
    let mine = sealed(&mut archive, NOON, 10);
    fs::write(mine.join("notes.txt"), "mine").expect("written");
    let linked = sealed(&mut archive, NOON, 10);
    symlink(
        elsewhere.path().join("host=h"),
        linked.join("host=other.host"),
    )
    .expect("linked");
    assert_eq!(archive.shrink(0).len(), 2);
    // What is left in them is not ours, and told of once.
    assert!(archive.shrink(0).is_empty());
    assert_eq!(archive.holding().bytes, 0);
    assert!(precious.join("1.parquet").exists());
    assert!(mine.join("notes.txt").exists());
    assert!(names.iter().all(|name| home.path().join(name).exists()));
}

#[test]
fn what_somebody_took_away_counts_no_more() {
    let home = folder();
    let mut archive = Archive::open(home.path()).expect("opened");
    let [first, second, third] = [0, 1, 2].map(|_| sealed(&mut archive, NOON, 1000));
    fs::remove_dir_all(&first).expect("removed");
    assert!(archive.shrink(2500).is_empty());
    assert_eq!([second.exists(), third.exists()], [true, true]);
    let holding = archive.holding();
    assert_eq!((holding.ledgers, holding.removed), (2, 0));
}

#[test]
fn one_that_got_no_ledger_leaves_nothing() {
    let home = folder();
    let mut archive = Archive::open(home.path()).expect("opened");
    let begun = archive.begin(NOON).expect("begun");
    archive.abandon(&begun);
    assert!(!begun.exists());
    assert_eq!(archive.holding().ledgers, 0);
    // One in which something could not be removed goes with the oldest.
    let begun = ledger(&mut archive, NOON, 10);
    fs::create_dir(begun.join("ledger.json.tmp")).expect("made");
    archive.abandon(&begun);
    assert_eq!(archive.holding().ledgers, 1);
    fs::remove_dir(begun.join("ledger.json.tmp")).expect("removed");
    assert!(archive.shrink(0).is_empty());
    assert!(!begun.exists());
}

#[test]
fn what_was_removed_in_another_folder_stays_counted() {
    let (home, other) = (folder(), folder());
    let mut archive = Archive::open(home.path()).expect("opened");
    sealed(&mut archive, NOON, 1000);
    archive.shrink(0);
    archive.move_to(Archive::open(other.path()).expect("opened"));
    assert_eq!(archive.holding().removed, 1);
}

#[test]
fn a_folder_that_is_somebody_elses_is_refused() {
    let home = folder();
    if let Err(e) = std::os::unix::fs::chown(home.path(), Some(65_534), None) {
        println!("skipped: needs root to give a folder away: {e}");
        return;
    }
    let refused = Archive::open(home.path()).expect_err("it is not ours");
    assert!(refused.to_string().contains("user 65534"), "{refused}");
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let home = folder();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o777)).expect("set");
    assert!(matches!(
        Archive::open(home.path()),
        Err(ArchiveError::Open(_))
    ));
}

#[test]
fn only_names_like_ours_are_read() {
    assert_eq!(number_of("2026-11-21T120000Z-000012"), Some(12));
    for name in [
        "2026-11-21T120000Z",
        "x-000012",
        "2026-11-21T120000Z-12",
        "2026-11-21T120000Z-00001x",
    ] {
        assert_eq!(number_of(name), None, "{name}");
    }
}
