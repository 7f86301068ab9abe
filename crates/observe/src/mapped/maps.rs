//! What a process has mapped, as `/proc/PID/maps` tells.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tailscope_signals::debug_file::DebugFile;
use tailscope_signals::rooted;

/// How long a page is: what is mapped begins with one.
pub(crate) const PAGE: u64 = 4096;

/// One mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapped {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// It may be executed.
    pub(crate) code: bool,
    /// Others that have mapped the same see what is written.
    pub(crate) shared: bool,
    /// Where in the file it begins.
    pub(crate) offset: u64,
    pub(crate) inode: u64,
    /// The file's name, with what the kernel puts behind it if it was removed.
    pub(crate) path: String,
}

impl Mapped {
    fn parse(line: &str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            rest = rest.trim_start();
            let (field, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
            rest = after;
            (!field.is_empty()).then_some(field)
        };
        let (start, end) = field()?.split_once('-')?;
        let mode = field()?;
        let offset = field()?;
        let _device = field()?;
        let inode = field()?.parse().ok()?;
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            code: mode.contains('x'),
            shared: mode.ends_with('s'),
            offset: hex(offset)?,
            inode,
            path: rest.trim_start().to_owned(),
        })
    }

    /// Opens the file that is mapped, even where its name leads elsewhere by now. Following the
    /// kernel's own link to it asks for an administrator's powers; without them it has to be open
    /// in the process, or still have its name.
    pub(crate) fn open(&self, pid: u32) -> io::Result<File> {
        let link = format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end);
        rooted::follow(Path::new(&link))
            .or_else(|_| self.open_descriptor(pid))
            .or_else(|_| self.open_name(pid))
    }

    fn open_name(&self, pid: u32) -> io::Result<File> {
        use std::os::unix::fs::MetadataExt;
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let file = rooted::open(&root, Path::new(&self.path))?;
        // File systems of several layers show other numbers in their upper half.
        if file.metadata()?.ino() as u32 == self.inode as u32 {
            Ok(file)
        } else {
            Err(io::Error::other("another file has taken its place"))
        }
    }

    /// The separate file with the debug symbols of this one, which was opened.
    pub(crate) fn debug_file(&self, pid: u32, program: &File) -> DebugFile {
        let path = self.path.strip_suffix(" (deleted)").unwrap_or(&self.path);
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        DebugFile::of(program, Path::new(path), &root).unwrap_or_default()
    }

    fn open_descriptor(&self, pid: u32) -> io::Result<File> {
        use std::os::unix::fs::MetadataExt;
        let mut found = Err(io::Error::from(io::ErrorKind::NotFound));
        for entry in fs::read_dir(format!("/proc/{pid}/fd"))?.flatten() {
            let path: PathBuf = entry.path();
            let same = |file: fs::Metadata| file.ino() == self.inode;
            let named = fs::read_link(&path).is_ok_and(|to| to.as_os_str() == self.path.as_str());
            if named && fs::metadata(&path).is_ok_and(same) {
                found = rooted::follow(&path);
            }
        }
        found
    }
}

/// Whether a mapping's name is that of a file in memory, as a C string of the header has it.
pub(crate) fn is_memory_file(path: &str, name: &[u8]) -> bool {
    path.strip_prefix("/memfd:").is_some_and(|rest| {
        let rest = rest.strip_suffix(" (deleted)").unwrap_or(rest);
        name.strip_suffix(b"\0") == Some(rest.as_bytes())
    })
}

/// All of them, by address.
pub(crate) fn read(pid: u32) -> io::Result<Vec<Mapped>> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    Ok(text.lines().filter_map(Mapped::parse).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let line = "7f0a1000-7f0a5000 rw-s 00002000 00:01 4711   /memfd:a b (deleted)";
        assert_eq!(
            Mapped::parse(line),
            Some(Mapped {
                start: 0x7f0a_1000,
                end: 0x7f0a_5000,
                code: false,
                shared: true,
                offset: 0x2000,
                inode: 4711,
                path: "/memfd:a b (deleted)".into(),
            })
        );
        let heap = "55-66 rw-p 00000000 00:00 0 ";
        assert_eq!(
            Mapped::parse(heap).map(|m| (m.path, m.shared)),
            Some((String::new(), false))
        );
    }

    proptest! {
        #[test]
        fn foreign_lines_never_panic(line: String) {
            let _ = Mapped::parse(&line);
        }
    }

    #[test]
    fn our_own_program_is_mapped_and_opens() {
        let maps = read(std::process::id()).expect("ours");
        let program = std::env::current_exe().expect("we are one");
        let mapped = maps.iter().find(|m| *program == *m.path).expect("mapped");
        assert!(
            mapped
                .open(std::process::id())
                .expect("opens")
                .metadata()
                .is_ok()
        );
    }
}
