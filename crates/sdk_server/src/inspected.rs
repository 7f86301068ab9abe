//! Which files have the SDK's probe, as far as they were searched. Processes come and go far more often
//! than the files that they run change, so a file is read again only after a change.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tailscope_process::maps::{CodeFile, code_files};
use tailscope_process::owner::{FileId, program_of};
use tailscope_symbols::sdk::{Address, SdkFile, SdkProbe, probes_in};

/// The most files that are remembered.
const MOST_FILES: usize = 16_384;
/// The most places of the probe that are remembered of a file. One with more is read each time.
const MOST_PLACES: usize = 8;
/// A file that changes is read again this much later at the earliest.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A file as it was when it was searched. Its owner can set the time of its last write, but not that
/// of its last change.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    length: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Version {
    fn of(about: &Metadata) -> Self {
        Self {
            length: about.len(),
            written: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
        }
    }
}

/// What was found in a file.
#[derive(Debug)]
enum Found {
    NoSdk,
    /// The SDK's probe, at these places.
    Sdk(Box<[SdkProbe]>),
    /// The SDK's probe, at more places than are remembered.
    Many,
}

impl Found {
    fn of(probes: &[SdkProbe]) -> Self {
        match probes.len() {
            0 => Self::NoSdk,
            1..=MOST_PLACES => Self::Sdk(probes.into()),
            _ => Self::Many,
        }
    }
}

#[derive(Debug)]
struct Inspection {
    version: Version,
    found: Found,
    at: Instant,
}

impl Inspection {
    /// Whether the file had no SDK, and was not changed since, or was searched just now.
    fn has_none(&self, version: &Version) -> bool {
        let settled = self.version == *version || self.at.elapsed() < READ_AGAIN;
        settled && matches!(self.found, Found::NoSdk)
    }
}

/// What was found in a process.
#[derive(Debug)]
pub struct Answer {
    /// The process.
    pub pid: u32,
    /// Whose it is.
    pub user: u32,
    /// The program that it ran when it had been searched; `None`: it was gone.
    pub program: Option<FileId>,
    /// The files with the SDK that it has mapped.
    pub files: Vec<SdkFile>,
    /// Files that can't be read, and why. Each is reported once.
    pub unread: Vec<(PathBuf, io::Error)>,
    /// Files whose SDK serves another recorder alone.
    pub for_another: Vec<PathBuf>,
}

/// The files that were searched for the SDK.
#[derive(Debug)]
pub(crate) struct Inspected {
    /// At which the recorder listens.
    address: Address,
    files: HashMap<FileId, Inspection>,
    /// Files that could not be read, and were reported.
    reported: HashSet<FileId>,
}

impl Inspected {
    pub(crate) fn new(address: Address) -> Self {
        Self {
            address,
            files: HashMap::new(),
            reported: HashSet::new(),
        }
    }

    /// Searches the files whose code a user's process has mapped.
    pub(crate) fn search(&mut self, pid: u32, user: u32) -> Answer {
        let mut answer = Answer {
            pid,
            user,
            program: None,
            files: Vec::new(),
            unread: Vec::new(),
            for_another: Vec::new(),
        };
        for mapped in code_files(pid).unwrap_or_default() {
            // Most files are known to have none, which one call tells.
            if mapped.metadata().is_ok_and(|about| self.has_none(&about)) {
                continue;
            }
            let Ok(file) = mapped.open() else {
                continue; // not a regular file, gone, or not ours to read: it has no SDK that counts
            };
            self.search_file(&mapped, file, &mut answer);
        }
        answer.program = program_of(pid);
        answer
    }

    fn has_none(&self, about: &Metadata) -> bool {
        let known = self.files.get(&(about.dev(), about.ino()));
        known.is_some_and(|known| known.has_none(&Version::of(about)))
    }

    fn search_file(&mut self, mapped: &CodeFile, file: File, answer: &mut Answer) {
        let Ok(about) = file.metadata() else { return };
        let id = (about.dev(), about.ino());
        let version = Version::of(&about);
        if let Some(known) = self.files.get(&id) {
            if known.has_none(&version) {
                return;
            }
            if let Found::Sdk(probes) = &known.found
                && known.version == version
            {
                let probes = probes.to_vec();
                answer
                    .files
                    .push(SdkFile::new(file, &about, mapped.path().to_owned(), probes));
                return;
            }
        }
        let probes = probes_in(&file).map(|probes| {
            if self.address != Address::First && probes.are_for_one() {
                answer.for_another.push(mapped.path().to_owned());
            }
            probes.at(self.address)
        });
        let found = Found::of(probes.as_deref().unwrap_or_default());
        self.remember(id, version, found);
        match probes {
            Ok(probes) if probes.is_empty() => {}
            Ok(probes) => {
                answer
                    .files
                    .push(SdkFile::new(file, &about, mapped.path().to_owned(), probes))
            }
            Err(e) if self.reported.len() < MOST_FILES && self.reported.insert(id) => {
                answer.unread.push((mapped.path().to_owned(), e));
            }
            Err(_) => {}
        }
    }

    fn remember(&mut self, id: FileId, version: Version, found: Found) {
        if self.files.len() >= MOST_FILES {
            self.files
                .retain(|_, known| !matches!(known.found, Found::NoSdk));
        }
        if self.files.len() < MOST_FILES {
            let at = Instant::now();
            self.files.insert(id, Inspection { version, found, at });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_searched_is_read_again_only_once_it_changes() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let version = || Version::of(&file.as_file().metadata().expect("its own"));
        let mut known = Inspection {
            version: version(),
            found: Found::of(&[]),
            at: Instant::now(),
        };
        assert!(known.has_none(&version()));
        let before = version();
        // The owner can put the time of the last write back; that of the last change then moves.
        let about = file.as_file().metadata().expect("its own");
        let written = about.modified().expect("a time");
        let changes = (0..1_000_000).any(|_| {
            file.as_file().set_modified(written).expect("set");
            version() != before
        });
        assert!(changes, "the time of the last change stood still");
        assert!(known.has_none(&version()), "searched just now");
        known.at -= READ_AGAIN;
        assert!(!known.has_none(&version()), "changed since");
        assert!(known.has_none(&before), "the same as when it was read");
    }
}
