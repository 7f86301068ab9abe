//! Which files have the SDK in them: those with its USDT probe.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tailscope_process::owner::FileId;
use tailscope_process::rooted;

use crate::elf::Elf;
use crate::usdt::{self, Argument, Spot};

/// The SDK's probe, as its note names it (`TS__PROBE` in tailscope.h).
const PROVIDER: &str = "tailscope";
const NAME: &str = "thread";
/// A program has one place of it for each time that a compiler put it into a function.
const MOST_PROBES: usize = 256;

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
    /// Where the SDK's probe is in it.
    pub probes: Vec<SdkProbe>,
}

impl SdkFile {
    /// Reads a file; `None`: it has no SDK.
    pub fn read(file: File, shown: PathBuf) -> io::Result<Option<Self>> {
        let about = file.metadata()?;
        let probes = probes_in(&file)?;
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

/// The places of the SDK's probe in a file. A file of another format than ELF has none.
///
/// # Errors
/// The file can't be read, or its notes make no sense.
pub fn probes_in(file: &File) -> io::Result<Vec<SdkProbe>> {
    let elf = match Elf::of(file) {
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return Ok(Vec::new()),
        elf => elf?,
    };
    let mut probes: Vec<SdkProbe> = usdt::notes(&elf)?
        .iter()
        .filter(|note| note.provider == PROVIDER && note.name == NAME)
        .filter_map(|note| {
            Some(SdkProbe {
                spot: usdt::spot(&elf, note)?,
                argument: Argument::parse(&note.arguments)?,
            })
        })
        .collect();
    probes.sort_unstable();
    probes.dedup();
    probes.truncate(MOST_PROBES);
    Ok(probes)
}

/// Whether a file has the SDK's probe.
pub fn has_sdk(path: &Path) -> io::Result<bool> {
    Ok(!probes_in(&rooted::follow(path)?)?.is_empty())
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
