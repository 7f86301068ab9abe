//! Which files have the SDK in them: those with its USDT probe.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tailscope_process::owner::FileId;
use tailscope_process::rooted;

use crate::elf::Elf;
use crate::usdt::{self, Argument, Note, Spot};

/// The SDK's probes, as their notes name them (`TS__PROBE` in tailscope.h).
const PROVIDER: &str = "tailscope";
/// A program has one place of it for each time that a compiler put it into a function.
const MOST_PROBES: usize = 256;

/// Where a recorder listens to the SDK: a probe in the programs, and a socket. Two recorders can listen
/// at a time, each at an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// The probe `thread`. Every SDK has it.
    First,
    /// The probe `thread_second`. SDKs that serve one recorder alone lack it.
    Second,
}

impl Address {
    /// The name of its probe.
    fn probe(self) -> &'static str {
        match self {
            Self::First => "thread",
            Self::Second => "thread_second",
        }
    }
}

/// A place of the SDK's probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SdkProbe {
    /// Where in the file.
    pub spot: Spot,
    /// Where the probe's one argument is when its instruction runs.
    pub argument: Argument,
}

/// A file that has the SDK in it.
#[derive(Debug)]
pub struct SdkFile {
    /// Held open, so that it stays the same one.
    pub file: File,
    /// Its path, for people.
    pub shown: PathBuf,
    /// Device and inode.
    pub id: FileId,
    /// No name leads to it: it goes with the processes that have it mapped.
    pub is_unlinked: bool,
    /// Where the probe is in it for the recorder that asked.
    pub probes: Vec<SdkProbe>,
}

impl SdkFile {
    /// Reads a file for a recorder that listens at this address; `None`: it has no SDK for that.
    pub fn read(file: File, shown: PathBuf, address: Address) -> io::Result<Option<Self>> {
        let about = file.metadata()?;
        let probes = probes_in(&file)?.at(address);
        Ok((!probes.is_empty()).then(|| Self::new(file, &about, shown, probes)))
    }

    /// A file that was searched already. `about`: what the file system says of it.
    #[must_use]
    pub fn new(file: File, about: &Metadata, shown: PathBuf, probes: Vec<SdkProbe>) -> Self {
        Self {
            id: (about.dev(), about.ino()),
            is_unlinked: about.nlink() == 0,
            file,
            shown,
            probes,
        }
    }
}

/// Where the SDK's probes are in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SdkProbes {
    first: Vec<SdkProbe>,
    second: Vec<SdkProbe>,
}

impl SdkProbes {
    /// Those for a recorder that listens at this address.
    #[must_use]
    pub fn at(self, address: Address) -> Vec<SdkProbe> {
        match address {
            Address::First => self.first,
            Address::Second => self.second,
        }
    }

    /// Whether the SDK in the file serves one recorder alone.
    #[must_use]
    pub fn are_for_one(&self) -> bool {
        self.second.is_empty() && !self.first.is_empty()
    }
}

/// The places of the SDK's probes in a file. A file of another format than ELF has none.
///
/// # Errors
/// The file can't be read, or its notes make no sense.
pub fn probes_in(file: &File) -> io::Result<SdkProbes> {
    let elf = match Elf::of(file) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(SdkProbes::default()),
        elf => elf?,
    };
    let notes = usdt::notes(&elf)?;
    let probes = |address: Address| {
        let named = |note: &&Note| note.provider == PROVIDER && note.name == address.probe();
        let probe = |note: &Note| {
            Some(SdkProbe {
                spot: usdt::spot(&elf, note)?,
                argument: Argument::parse(&note.arguments)?,
            })
        };
        let mut probes: Vec<SdkProbe> = notes.iter().filter(named).filter_map(probe).collect();
        probes.sort_unstable();
        probes.dedup();
        probes.truncate(MOST_PROBES);
        probes
    };
    Ok(SdkProbes {
        first: probes(Address::First),
        second: probes(Address::Second),
    })
}

/// Whether a file has the SDK's probe.
pub fn has_sdk(path: &Path) -> io::Result<bool> {
    Ok(!probes_in(&rooted::follow(path)?)?.first.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_it_has_none() {
        assert!(!has_sdk(Path::new("/bin/true")).expect("read"));
        assert!(!has_sdk(Path::new("Cargo.toml")).expect("read"));
        assert!(has_sdk(Path::new("/dev/zero")).is_err());
    }
}
