//! What a process has mapped: the one reader of `/proc/PID/maps`.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::proc;
use crate::rooted::{self, FileKey};

/// What the kernel puts behind the name of a mapped file that was removed or replaced.
const DELETED: &str = " (deleted)";
/// The most files that are read of one process; a browser maps some 300.
const MOST_FILES: usize = 4096;

/// One mapping: `5600-5700 r-xp 00001000 08:01 4711 /bin/true`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its first address.
    pub start: u64,
    /// The address behind its last one.
    pub end: u64,
    /// It may be executed.
    pub code: bool,
    /// It may be written.
    pub writable: bool,
    /// Others that have mapped the same see what is written.
    pub shared: bool,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Which file it is of.
    pub file: FileKey,
    /// The file's name, with what the kernel puts behind it if it was removed.
    pub path: String,
}

impl Mapping {
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            rest = rest.trim_start();
            let (field, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
            rest = after;
            (!field.is_empty()).then_some(field)
        };
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let number = |text| u32::from_str_radix(text, 16).ok();
        let (start, end) = field()?.split_once('-')?;
        let mode = field()?;
        let offset = field()?;
        let (major, minor) = field()?.split_once(':')?;
        let inode = field()?.parse().ok()?;
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            code: mode.contains('x'),
            writable: mode.contains('w'),
            shared: mode.ends_with('s'),
            offset: hex(offset)?,
            file: FileKey {
                device: (number(major)?, number(minor)?),
                inode,
            },
            path: rest.trim_start().to_owned(),
        })
    }

    /// Its addresses.
    #[must_use]
    pub fn addresses(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Whether it is of a file that has, or had, a name.
    #[must_use]
    pub fn has_path(&self) -> bool {
        self.path.starts_with('/')
    }

    /// Whether the file's name leads elsewhere by now.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// Whether it is the process's own memory, of no file: also where the process gave it a name.
    #[must_use]
    pub fn is_memory(&self) -> bool {
        self.path.is_empty() || self.path.starts_with("[anon:")
    }

    /// Whether it is of some file in memory (memfd), which a process can share with itself.
    #[must_use]
    pub fn is_of_memfd(&self) -> bool {
        self.path.starts_with("/memfd:")
    }

    /// Whether it has code that the process itself made.
    ///
    /// Some run-times map it from a memfd, so that the same pages can be written to elsewhere (.NET).
    /// A program that was started from a memfd has its functions in the file.
    #[must_use]
    pub fn is_made_at_run_time(&self, pid: u32) -> bool {
        let is_program = || {
            let mut magic = [0; 4];
            let file = self.open(pid);
            file.and_then(|file| file.read_exact_at(&mut magic, 0))
                .is_ok_and(|()| magic == *b"\x7fELF")
        };
        self.is_memory() || self.is_of_memfd() && !is_program()
    }

    /// The file's name, as the process had it when it mapped the file.
    #[must_use]
    pub fn name(&self) -> &Path {
        Path::new(self.path.strip_suffix(DELETED).unwrap_or(&self.path))
    }

    /// Whether it is of the file in memory (memfd) of this name, a C string of a shared header.
    #[must_use]
    pub fn is_memory_file(&self, name: &[u8]) -> bool {
        let of_memory = self.path.strip_prefix("/memfd:");
        of_memory.is_some_and(|rest| {
            let rest = rest.strip_suffix(DELETED).unwrap_or(rest);
            name.strip_suffix(b"\0") == Some(rest.as_bytes())
        })
    }

    /// The kernel's own link to the file. To follow it takes `CAP_SYS_ADMIN` or
    /// `CAP_CHECKPOINT_RESTORE`.
    #[must_use]
    pub fn link(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{pid}/map_files/{:x}-{:x}",
            self.start, self.end
        ))
    }

    /// Opens the very file that is mapped, also one in another mount namespace, or whose name is gone.
    ///
    /// # Errors
    /// The link can't be followed, the name leads to another file or to none, and the process does not
    /// hold the file open.
    pub fn open(&self, pid: u32) -> io::Result<File> {
        rooted::follow(&self.link(pid))
            .or_else(|_| self.open_name(pid))
            .or_else(|e| self.open_descriptor(pid).ok_or(e))
    }

    fn open_name(&self, pid: u32) -> io::Result<File> {
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let file = rooted::open(&root, self.name())?;
        if self.file.is_of(&file)? {
            Ok(file)
        } else {
            Err(io::Error::other("another file has taken its place"))
        }
    }

    /// Through a descriptor of the process: no name leads to a file in memory.
    fn open_descriptor(&self, pid: u32) -> Option<File> {
        if !self.is_deleted() {
            return None;
        }
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        descriptors
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                fs::read_link(path).is_ok_and(|to| to.as_os_str() == self.path.as_str())
                    && fs::metadata(path).is_ok_and(|file| file.ino() == self.file.inode)
            })
            .find_map(|path| rooted::follow(&path).ok())
    }
}

/// A file whose code a process has mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFile {
    pid: u32,
    mapping: Mapping,
}

impl CodeFile {
    /// Whether it is HotSpot, by its name.
    #[must_use]
    pub fn is_jvm(&self) -> bool {
        self.path()
            .file_name()
            .is_some_and(|name| name == "libjvm.so")
    }

    /// Its path, as the process has it.
    #[must_use]
    pub fn path(&self) -> &Path {
        Path::new(&self.mapping.path)
    }

    /// What the file system says of the very file, by one call that opens nothing.
    ///
    /// # Errors
    /// The link can't be followed: see [`Mapping::link`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        fs::metadata(self.mapping.link(self.pid))
    }

    /// Opens the very file.
    ///
    /// # Errors
    /// As [`Mapping::open`].
    pub fn open(&self) -> io::Result<File> {
        self.mapping.open(self.pid)
    }
}

/// All mappings of a process, by address.
///
/// # Errors
/// The process is gone, or the kernel refuses.
pub fn read(pid: u32) -> io::Result<Vec<Mapping>> {
    Ok(mappings(&text_of(pid)?).collect())
}

/// This process's own mappings, also where `/proc` is that of another PID namespace.
///
/// # Errors
/// `/proc` is not there.
pub fn own() -> io::Result<Vec<Mapping>> {
    Ok(mappings(&proc::read("/proc/self/maps")?).collect())
}

/// The mappings of code of a process that are of a file, by address.
///
/// # Errors
/// As [`read`].
pub fn code(pid: u32) -> io::Result<Vec<Mapping>> {
    // Most mappings are data: their lines are not taken apart.
    let text = text_of(pid)?;
    let may_run = |line: &&str| {
        line.split(' ')
            .nth(1)
            .is_some_and(|mode| mode.contains('x'))
    };
    let mappings = text.lines().filter(may_run).filter_map(Mapping::parse);
    Ok(mappings.filter(Mapping::has_path).collect())
}

/// The files whose code a process has mapped, each once.
///
/// # Errors
/// As [`read`].
pub fn code_files(pid: u32) -> io::Result<Vec<CodeFile>> {
    let mut seen = HashSet::new();
    Ok(code(pid)?
        .into_iter()
        .filter(|mapping| seen.insert(mapping.file))
        .take(MOST_FILES)
        .map(|mapping| CodeFile { pid, mapping })
        .collect())
}

fn text_of(pid: u32) -> io::Result<String> {
    proc::read(format!("/proc/{pid}/maps"))
}

fn mappings(text: &str) -> impl Iterator<Item = Mapping> {
    text.lines().filter_map(Mapping::parse)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, major, memfd_create, minor};

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "7f0a1000-7f0a5000 rw-s 00002000 fe:01 4711   /memfd:a b (deleted)";
        let mapping = Mapping::parse(line).expect("a line");
        assert_eq!(
            mapping,
            Mapping {
                start: 0x7f0a_1000,
                end: 0x7f0a_5000,
                code: false,
                writable: true,
                shared: true,
                offset: 0x2000,
                file: FileKey {
                    device: (0xfe, 1),
                    inode: 4711,
                },
                path: "/memfd:a b (deleted)".into(),
            }
        );
        assert!(mapping.is_memory_file(b"a b\0") && !mapping.is_memory_file(b"a\0"));
        assert!(mapping.is_of_memfd() && !mapping.is_memory());
        let named = Mapping::parse("55-66 rw-s 00000000 fe:01 4711 /tmp/a b").expect("a line");
        assert!(!named.is_memory_file(b"a b\0"), "a file of that name");
        assert!(!named.is_of_memfd());
        assert_eq!(mapping.name(), Path::new("/memfd:a b"));
        let heap = Mapping::parse("55-66 rw-p 00000000 00:00 0 ").expect("a line");
        assert!(heap.path.is_empty() && !heap.shared && !heap.has_path());
    }

    proptest! {
        #[test]
        fn foreign_lines_never_panic(line: String) {
            let _ = Mapping::parse(&line);
        }
    }

    #[test]
    fn our_own_program_is_mapped_and_opens() {
        let us = std::process::id();
        let program = std::env::current_exe().expect("we are one");
        let maps = own().expect("ours");
        assert_eq!(maps.len(), read(us).expect("ours").len());
        let mapped = maps.iter().find(|m| m.name() == program).expect("mapped");
        assert!(mapped.open(us).is_ok());
        let files = code_files(us).expect("ours");
        assert!(files.iter().any(|file| file.path() == program));
        assert!(files.iter().all(|file| file.open().is_ok()));
    }

    fn mapping_of(path: &str, file: &File) -> Mapping {
        let about = file.metadata().expect("its own");
        Mapping {
            start: 1, // no such mapping: the kernel has no link to it
            end: 2,
            code: false,
            writable: false,
            shared: false,
            offset: 0,
            file: FileKey {
                device: (major(about.dev()), minor(about.dev())),
                inode: about.ino(),
            },
            path: path.into(),
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_mapped_one_is_another() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut mapping = mapping_of(file.path().to_str().expect("plain"), file.as_file());
        assert!(mapping.open(std::process::id()).is_ok());
        mapping.file.inode += 1;
        assert!(mapping.open(std::process::id()).is_err());
    }

    #[test]
    fn a_file_in_memory_opens_through_a_descriptor() {
        let name = format!("tailscope-test-{}", std::process::id());
        let file = File::from(memfd_create(name.as_str(), MemfdFlags::CLOEXEC).expect("made"));
        let mapping = mapping_of(&format!("/memfd:{name} (deleted)"), &file);
        assert!(
            mapping.open(std::process::id()).is_ok(),
            "{}",
            file.as_raw_fd()
        );
        drop(file);
        assert!(mapping.open(std::process::id()).is_err());
    }
}
