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
    #[error("another agent writes to {0}; give each agent its own folder")]
    Taken(PathBuf),
    /// Somebody else could put links in the way of what is removed.
    #[error("others may write to {0}, where the agent removes old ledgers; run chmod go-w on it")]
    Open(PathBuf),
    /// It is somebody else's, who could do so too.
    #[error(
        "{path} belongs to user {owner}, and the agent removes old ledgers there; run chown {me} on it"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        me: u32,
    },
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
        make_folder(folder).map_err(system("create", folder))?;
        let about = fs::metadata(folder).map_err(system("look at", folder))?;
        if about.mode() & 0o022 != 0 {
            return Err(ArchiveError::Open(folder.to_owned()));
        }
        let me = rustix::process::geteuid().as_raw();
        if about.uid() != me {
            return Err(ArchiveError::Foreign {
                path: folder.to_owned(),
                owner: about.uid(),
                me,
            });
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
            match tailscope_output::Folder::make_new(&path) {
                Ok(_) => {}
                // Somebody else's: not marked, so not counted when we opened.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(system("create", &path)(e)),
            }
            let mark = path.join(MARK);
            let said = "A ledger of tailscope agent, which removes it when its quota is used up.\n";
            if let Err(e) = tailscope_output::write(&mark, said) {
                let _ = fs::remove_file(&mark);
                let _ = fs::remove_dir(&path);
                return Err(system("write", &mark)(e));
            }
            self.kept.push(Kept {
                number,
                path: path.clone(),
                bytes: None,
            });
            return Ok(path);
        }
    }

    /// Takes back one that was begun and got no ledger: a full disk would be strewn with them, for it
    /// is tried again every few seconds. What can't be removed now is removed with the oldest.
    pub(crate) fn abandon(&mut self, path: &Path) {
        if remove(path).is_ok() {
            self.kept.retain(|ledger| ledger.path != path);
        } else {
            self.sealed(path);
        }
    }

    /// Goes on in another folder.
    pub(crate) fn move_to(&mut self, other: Self) {
        let removed = self.removed;
        *self = other;
        self.removed += removed;
    }

    /// A ledger that will not grow any more.
    pub(crate) fn sealed(&mut self, path: &Path) {
        if let Some(ledger) = self.kept.iter_mut().find(|ledger| ledger.path == path) {
            ledger.bytes = Some(size_of(path));
        }
    }

    /// Removes the oldest sealed ledgers until all together take no more than the quota. Those that
    /// somebody took away are forgotten. Gives back those that could not be removed, and why.
    pub(crate) fn shrink(&mut self, quota: u64) -> Vec<ArchiveError> {
        let mut failed = Vec::new();
        self.kept
            .retain(|ledger| ledger.bytes.is_none() || is_ours(&ledger.path));
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
                    // Some of it may be gone all the same.
                    let left = size_of(&self.kept[place].path);
                    self.kept[place].bytes = Some(left);
                    bytes = (bytes + left).saturating_sub(size);
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

/// Makes the folder if it is not there. Whether one that is there may be used is asked next.
fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::symlink_metadata(folder) {
        Ok(_) => Ok(()),
        Err(_) => tailscope_output::Folder::make(folder).map(drop),
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
            "it is no longer a ledger of the agent",
        )));
    }
    tailscope_trace::clear(path).map_err(|e| system("clear", path)(io::Error::other(e)))?;
    // The mark goes last but one: cut off before, the next start finds the rest.
    let mark = path.join(MARK);
    let strangers = fs::read_dir(path)
        .map_err(system("list", path))?
        .flatten()
        .any(|entry| entry.path() != mark);
    fs::remove_file(&mark).map_err(system("remove", &mark))?;
    if strangers {
        // Without the mark it is theirs alone, and nobody tries again.
        return Err(system("remove", path)(io::Error::other(
            "it also has other files, which stay",
        )));
    }
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
mod tests;
