//! Which files have the SDK in them, and which files a process has mapped the code of.
//!
//! A watched process decides which files these are, and what is in them. So they are opened as
//! [`rooted`] opens files, and read as [`Elf`] reads them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::elf::Elf;
use crate::rooted::{self, FileKey};
use crate::usdt::{self, Argument, Spot};

/// The SDK's probe, as its note names it (`TS__PROBE` in tailscope.h).
const PROVIDER: &str = "tailscope";
const NAME: &str = "thread";
/// A program has one place of it for each time that a compiler put it into a function.
const MOST_PROBES: usize = 256;
/// Of one process so many files are looked at; a browser maps some 300.
const MOST_FILES: usize = 4096;
/// A process holds the SDK's file in memory open once.
const MOST_DESCRIPTORS: usize = 16;

/// Device and inode, as `stat` has them.
pub type FileId = (u64, u64);

/// Which file is at a path, and when it was last written; `None`: none is.
#[must_use]
pub fn version_of(file: &Path) -> Option<(FileId, i64, i64)> {
    let about = fs::metadata(file).ok()?;
    Some((
        (about.dev(), about.ino()),
        about.mtime(),
        about.mtime_nsec(),
    ))
}

/// The file of the program that a process runs; `None`: it is gone.
#[must_use]
pub fn program_of(pid: u32) -> Option<FileId> {
    version_of(Path::new(&format!("/proc/{pid}/exe"))).map(|(id, ..)| id)
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

/// How much memory processes had mapped when the files that they run were last listed. A list takes
/// a tenth of a millisecond and more, that number a hundredth, and a process that is at rest or has all
/// its memory keeps it.
#[derive(Debug, Default)]
pub struct Mapped(HashMap<u32, (String, u32)>);

/// What was mapped can be just as large as what was unmapped: then it is found this many times later.
const UNCHANGED: u32 = 10;

impl Mapped {
    /// Whether it may have mapped a file since this said so the last time.
    pub fn have_changed(&mut self, pid: u32) -> bool {
        let size = fs::read_to_string(format!("/proc/{pid}/statm"))
            .ok()
            .and_then(|statm| Some(statm.split_once(' ')?.0.to_owned()));
        let Some(size) = size else { return true };
        let (before, times) = self.0.entry(pid).or_default();
        *times += 1;
        let changed = *before != size || *times > UNCHANGED;
        if changed {
            (*before, *times) = (size, 0);
        }
        changed
    }

    /// The process is gone, or runs another program.
    pub fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

/// A file whose code a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFile {
    pid: u32,
    range: String,
    /// As the process has it.
    path: PathBuf,
    key: FileKey,
}

impl CodeFile {
    /// Whether it is HotSpot, by its name.
    #[must_use]
    pub fn is_jvm(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|name| name == "libjvm.so")
    }

    /// Its path, as the process has it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file system says of the very file, by one call that opens nothing. Takes
    /// `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`.
    pub fn metadata(&self) -> io::Result<Metadata> {
        fs::metadata(format!("/proc/{}/map_files/{}", self.pid, self.range))
    }

    /// Opens the very file, or nothing: also one in another mount namespace, or whose name is gone.
    pub fn open(&self) -> io::Result<File> {
        rooted::open_mapped(self.pid, &self.range, &self.path, self.key).or_else(|e| {
            if self.path != Path::new(SDK_IN_MEMORY) {
                return Err(e);
            }
            descriptors_of(self.pid, SDK_IN_MEMORY)
                .into_iter()
                .find_map(|path| rooted::follow(&path).ok())
                .ok_or(e)
        })
    }
}

/// The files whose code a process has mapped, each once.
pub fn code_files(pid: u32) -> io::Result<Vec<CodeFile>> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let mut seen = HashSet::new();
    Ok(maps
        .lines()
        .filter_map(|line| code_file(pid, line))
        .filter(|file| seen.insert(file.key))
        .take(MOST_FILES)
        .collect())
}

/// The file of a mapping of code, from its line: `5600-5700 r-xp 00001000 08:01 4711 /bin/true`.
fn code_file(pid: u32, line: &str) -> Option<CodeFile> {
    let mut fields = line.split_whitespace();
    let (range, mode, _offset) = (fields.next()?, fields.next()?, fields.next()?);
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let key = FileKey {
        device: (number(major)?, number(minor)?),
        inode: fields.next()?.parse().ok()?,
    };
    let path = line.find('/').map(|at| &line[at..])?;
    mode.contains('x').then(|| CodeFile {
        pid,
        range: range.to_owned(),
        path: PathBuf::from(path),
        key,
    })
}

/// What the SDK for Java maps, which has no program file to keep its probe in (`Probe.NAME` in
/// sdk/java): a file in memory, which no path leads to.
const SDK_IN_MEMORY: &str = "/memfd:tailscope-sdk (deleted)";

/// The address range and the file of each mapping of code in `/proc/PID/maps`.
pub fn code_mappings(maps: &str) -> impl Iterator<Item = (&str, &str)> {
    maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (range, mode) = (fields.next()?, fields.next()?);
        let path = line.find('/').map(|at| &line[at..])?;
        mode.contains('x').then_some((range, path))
    })
}

/// The descriptors through which a process holds files open that have this name in its maps. Unlike
/// the links in `map_files`, they can be followed without the powers of an administrator.
fn descriptors_of(pid: u32, name: &str) -> Vec<PathBuf> {
    fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| fs::read_link(path).is_ok_and(|to| to.as_os_str() == name))
        .take(MOST_DESCRIPTORS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_looked_at_again_when_it_has_mapped_more_and_now_and_then() {
        let mut mapped = Mapped::default();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep starts");
        let (pid, us) = (child.id(), std::process::id());
        assert!(mapped.have_changed(us), "not looked at yet");
        let more = std::hint::black_box(vec![1_u8; 64 << 20]); // in a mapping of its own
        assert!(mapped.have_changed(us), "64 MiB more");
        drop(more);
        // It may still be starting; once its memory is the same twice, it sleeps.
        let sleeps = (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !mapped.have_changed(pid)
        });
        assert!(sleeps, "its memory never stayed the same");
        let times = 1 + (0..100).take_while(|_| !mapped.have_changed(pid)).count();
        assert_eq!(times, UNCHANGED as usize);
        mapped.forget(pid);
        assert!(mapped.have_changed(pid), "forgotten");
        child.kill().expect("it can be ended");
        child.wait().expect("it ends");
        assert!(
            mapped.have_changed(pid),
            "gone: that may be all there is to know"
        );
    }

    #[test]
    fn a_file_without_it_has_none() {
        assert!(!has_sdk(Path::new("/bin/true")).expect("read"));
        assert!(!has_sdk(Path::new("Cargo.toml")).expect("read"));
        assert!(has_sdk(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn a_line_of_the_maps_says_which_file() {
        let line = "5600-5700 r-xp 00001000 fe:01 4711   /opt/a b (deleted)";
        let file = code_file(7, line).expect("code of a file");
        assert_eq!(file.path, Path::new("/opt/a b (deleted)"));
        assert_eq!(file.range, "5600-5700");
        assert_eq!((file.key.device, file.key.inode), ((0xfe, 1), 4711));
        for other in [
            "5600-5700 r--p 00001000 fe:01 4711 /opt/a",
            "5600-5700 r-xp 00001000 00:00 0 [vdso]",
            "",
        ] {
            assert_eq!(code_file(7, other), None);
        }
    }

    #[test]
    fn our_own_files_open() {
        let files = code_files(std::process::id()).expect("our own maps");
        assert!(!files.is_empty() && files.iter().all(|file| file.open().is_ok()));
    }
}
