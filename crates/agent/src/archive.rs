//! The folder of ledgers: each in a folder of its own that is named for when it began, the oldest
//! removed for the quota.
//!
//! A ledger of an agent is a real folder, not a link, with the agent's mark in it and a name that
//! ends in its number. Nothing else is ever removed, and nothing through a link. Which is the
//! oldest, the numbers say: a clock may be set back.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tailscope_trace::utc;

/// What says that a ledger was made by an agent, and may be removed by one.
const MARK: &str = ".made-by-tailscope-agent";
/// Who holds it serves the folder.
const LOCK: &str = ".tailscope-agent.lock";

/// The folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The system refused.
    #[error("can't {what} {path}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent serves it.
    #[error("another agent writes to {0}: give each a folder of its own")]
    Taken(PathBuf),
    /// Somebody else could put links in the way of what is removed.
    #[error("others may write to {0}: chmod go-w it, for its ledgers are removed one day")]
    Open(PathBuf),
}

fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    move |source| ArchiveError::System {
        what,
        path: path.to_owned(),
        source,
    }
}

/// A ledger that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    number: u64,
    path: PathBuf,
    /// What it takes, if it is sealed and will not grow.
    bytes: Option<u64>,
}

/// What is there now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Holding {
    pub(crate) ledgers: u64,
    pub(crate) bytes: u64,
    /// Since the start.
    pub(crate) removed: u64,
}

/// The folder, and the ledgers in it.
#[derive(Debug)]
pub(crate) struct Archive {
    folder: PathBuf,
    /// Held as long as this lives.
    _lock: File,
    /// Oldest first.
    kept: Vec<Kept>,
    next: u64,
    removed: u64,
}

impl Archive {
    /// Opens the folder, or makes it. Ledgers that an agent left are its own from now on.
    pub(crate) fn open(folder: &Path) -> Result<Self, ArchiveError> {
        fs::create_dir_all(folder).map_err(system("create", folder))?;
        let about = fs::metadata(folder).map_err(system("look at", folder))?;
        if about.mode() & 0o022 != 0 {
            return Err(ArchiveError::Open(folder.to_owned()));
        }
        let path = folder.join(LOCK);
        let lock = File::create(&path).map_err(system("create", &path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| ArchiveError::Taken(folder.to_owned()))?;
        let mut kept = Vec::new();
        for entry in fs::read_dir(folder)
            .map_err(system("list", folder))?
            .flatten()
        {
            let number = entry.file_name().to_str().and_then(number_of);
            let (Some(number), path) = (number, entry.path()) else {
                continue;
            };
            if is_ours(&path) {
                let bytes = Some(size_of(&path));
                kept.push(Kept {
                    number,
                    path,
                    bytes,
                });
            }
        }
        kept.sort_by_key(|ledger| ledger.number);
        let next = kept.last().map_or(1, |ledger| ledger.number + 1);
        Ok(Self {
            folder: folder.to_owned(),
            _lock: lock,
            kept,
            next,
            removed: 0,
        })
    }

    /// A new folder for a ledger that begins at this time, in ns since the Unix epoch.
    pub(crate) fn begin(&mut self, unix_ns: i64) -> Result<PathBuf, ArchiveError> {
        loop {
            let number = self.next;
            self.next += 1;
            let path = self.folder.join(format!("{}-{number:06}", utc(unix_ns)));
            match fs::create_dir(&path) {
                Ok(()) => {}
                // Somebody else's: not marked, so not counted when we opened.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(system("create", &path)(e)),
            }
            let mark = path.join(MARK);
            let said = "A ledger of tailscope agent, which removes it when its quota is used up.\n";
            fs::write(&mark, said).map_err(system("write", &mark))?;
            self.kept.push(Kept {
                number,
                path: path.clone(),
                bytes: None,
            });
            return Ok(path);
        }
    }

    /// A ledger that will not grow any more.
    pub(crate) fn sealed(&mut self, path: &Path) {
        if let Some(ledger) = self.kept.iter_mut().find(|ledger| ledger.path == path) {
            ledger.bytes = Some(size_of(path));
        }
    }

    /// Removes the oldest sealed ledgers until all together take no more than the quota.
    /// Gives back those that could not be removed, and why.
    pub(crate) fn shrink(&mut self, quota: u64) -> Vec<ArchiveError> {
        let mut failed = Vec::new();
        let growing: u64 = self.growing().map(|ledger| size_of(&ledger.path)).sum();
        let mut bytes = growing + self.sealed_bytes();
        let mut place = 0;
        while bytes > quota && place < self.kept.len() {
            let Some(size) = self.kept[place].bytes else {
                place += 1;
                continue;
            };
            match remove(&self.kept[place].path) {
                Ok(()) => {
                    bytes -= size.min(bytes);
                    self.kept.remove(place);
                    self.removed += 1;
                }
                Err(e) => {
                    failed.push(e);
                    place += 1;
                }
            }
        }
        failed
    }

    fn growing(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|ledger| ledger.bytes.is_none())
    }

    fn sealed_bytes(&self) -> u64 {
        self.kept.iter().filter_map(|ledger| ledger.bytes).sum()
    }

    /// What is there now; what still grows was last measured at this moment.
    pub(crate) fn holding(&self) -> Holding {
        let growing: u64 = self.growing().map(|ledger| size_of(&ledger.path)).sum();
        Holding {
            ledgers: self.kept.len() as u64,
            bytes: self.sealed_bytes() + growing,
            removed: self.removed,
        }
    }
}

/// The number at the end of a ledger's name.
fn number_of(name: &str) -> Option<u64> {
    let (time, number) = name.rsplit_once('-')?;
    let is_time = time.len() == "2026-11-20T235901Z".len() && time.ends_with('Z');
    let digits = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_time && digits).then(|| number.parse().ok())?
}

/// Whether an agent made it: asked again before it is removed.
fn is_ours(path: &Path) -> bool {
    let is = |path: &Path, kind: fn(&fs::Metadata) -> bool| {
        fs::symlink_metadata(path).is_ok_and(|about| kind(&about))
    };
    is(path, fs::Metadata::is_dir) && is(&path.join(MARK), fs::Metadata::is_file)
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    if !is_ours(path) {
        return Err(system("remove", path)(io::Error::other(
            "it is no agent's ledger any more",
        )));
    }
    tailscope_trace::clear(path).map_err(|e| system("clear", path)(io::Error::other(e)))?;
    // The mark goes last but one: cut off before, the next start finds the rest.
    let mark = path.join(MARK);
    let strangers = fs::read_dir(path)
        .map_err(system("list", path))?
        .flatten()
        .any(|entry| entry.path() != mark);
    if strangers {
        return Err(system("remove", path)(io::Error::other(
            "somebody else's files lie in it",
        )));
    }
    fs::remove_file(&mark).map_err(system("remove", &mark))?;
    fs::remove_dir(path).map_err(system("remove", path))
}

/// The bytes of the files in it, not followed through links.
fn size_of(folder: &Path) -> u64 {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => size_of(&entry.path()),
            Ok(about) if about.is_file() => about.len(),
            _ => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
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
        assert!(precious.join("1.parquet").exists());
        assert!(mine.join("notes.txt").exists());
        assert!(names.iter().all(|name| home.path().join(name).exists()));
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
}
