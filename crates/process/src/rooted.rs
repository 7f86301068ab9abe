//! Opening files that another process chose or can replace: regular files only, and never a wait.
//!
//! A path in another process's files can be anything by the time it is opened: a FIFO, which blocks;
//! a device, which opening alone may start; a link out of the process's root. So a path is first
//! taken hold of without opening it (`O_PATH`), then looked at, and opened only if it is a regular
//! file. Reads are bounded by whoever reads, with `pread`.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, major, minor, openat, openat2,
};

/// File systems whose files `stat` shows with another device than the kernel's maps do.
const OVERLAYFS: i64 = 0x794c_7630;
const BTRFS: i64 = 0x9123_683e;

/// Which file the kernel says is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// Major and minor number of its device.
    pub device: (u32, u32),
    /// Its inode.
    pub inode: u64,
}

/// Which version of a file it is: its length, and when it was written to.
pub type Version = (u64, i64, i64);

/// The version of a file.
#[must_use]
pub fn version(about: &Metadata) -> Version {
    (about.len(), about.mtime(), about.mtime_nsec())
}

impl FileKey {
    /// Whether this is that file.
    pub(crate) fn is_of(self, file: &File) -> io::Result<bool> {
        let about = fstat(file)?;
        match fstatfs(file)?.f_type as i64 {
            // With several layers, the upper half of an inode's number may say which.
            OVERLAYFS => Ok(about.st_ino as u32 == self.inode as u32),
            BTRFS => Ok(about.st_ino == self.inode),
            _ => {
                let device = (major(about.st_dev), minor(about.st_dev));
                Ok(about.st_ino == self.inode && device == self.device)
            }
        }
    }
}

/// Opens a regular file as a process with this root sees it: links do not lead out of the root.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    let root = openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    open_regular(openat2(
        &root,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )?)
}

/// Opens a folder as a process with this root sees it.
pub fn open_folder(root: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, root, OFlags::PATH | flags, Mode::empty())?;
    let folder = openat2(
        &root,
        path,
        OFlags::RDONLY | flags,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )?;
    Ok(folder.into())
}

/// Opens a regular file by a path of ours, such as a link in `/proc`.
pub fn follow(path: &Path) -> io::Result<File> {
    open_regular(openat(
        CWD,
        path,
        OFlags::PATH | OFlags::CLOEXEC,
        Mode::empty(),
    )?)
}

/// Opens for reading what is held by `O_PATH`, if it is a regular file.
fn open_regular(place: OwnedFd) -> io::Result<File> {
    if FileType::from_raw_mode(fstat(&place)?.st_mode) != FileType::RegularFile {
        return Err(io::Error::other("it is not a regular file"));
    }
    let again = format!("/proc/self/fd/{}", place.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, again, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_stay_within_the_root() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let here = root.path();
        std::fs::write(here.join("inside"), "inside").expect("written");
        symlink("/inside", here.join("absolute")).expect("linked");
        symlink("../../../inside", here.join("upwards")).expect("linked");
        for path in ["/inside", "absolute", "upwards", "/../inside"] {
            assert!(open(here, Path::new(path)).is_ok(), "{path}");
        }
        symlink("/etc/passwd", here.join("outside")).expect("linked");
        assert!(open(here, Path::new("outside")).is_err());
        assert!(open(here, Path::new("/")).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let fifo = root.path().join("fifo");
        rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).expect("made");
        symlink("/dev/zero", root.path().join("device")).expect("linked");
        for name in ["fifo", "device", "."] {
            let error = follow(&root.path().join(name)).expect_err(name);
            assert!(error.to_string().contains("regular"), "{name}: {error}");
        }
        let error = open(root.path(), Path::new("/fifo")).expect_err("a FIFO");
        assert!(error.to_string().contains("regular"), "{error}");
    }
}
