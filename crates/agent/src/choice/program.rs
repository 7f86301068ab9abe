//! Which program a process runs, by the file and not by the name that its mounts give it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, ResolveFlags, Statx, StatxFlags, openat, openat2, statx,
};
use rustix::io::Errno;

/// What the kernel puts behind the path of a file that is removed.
const DELETED: &[u8] = b" (deleted)";
/// What is asked of a file.
const WANTED: StatxFlags = StatxFlags::INO
    .union(StatxFlags::BTIME)
    .union(StatxFlags::MNT_ID);

/// A file, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    device: (u32, u32),
    inode: u64,
    /// A number may be given again after a file is removed; no user sets this time. Zeros where a
    /// file system does not keep it.
    born: (i64, u32),
    /// The mount through which it was opened; no two namespaces share one.
    mount: u64,
}

impl File {
    /// The file itself, wherever it is mounted.
    fn is(&self, other: &Self) -> bool {
        (self.device, self.inode, self.born) == (other.device, other.inode, other.born)
    }

    fn of(found: &Statx) -> Self {
        let born = if found.stx_mask & StatxFlags::BTIME.bits() == 0 {
            (0, 0)
        } else {
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
        };
        Self {
            device: (found.stx_dev_major, found.stx_dev_minor),
            inode: found.stx_ino,
            born,
            mount: found.stx_mnt_id,
        }
    }
}

/// The program that a process runs.
pub(super) struct Program {
    pid: u32,
    file: File,
    /// Its path when it was started, as its own mounts have it: a hint, not a proof.
    shown: PathBuf,
}

impl Program {
    /// That of a process; `None` for one that is gone, and for a thread of the kernel's own.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let shown = fs::read_link(&link).ok()?;
        // Its file system may be served by a user's process, which is not waited for.
        let found = statx(CWD, &link, AtFlags::STATX_DONT_SYNC, WANTED).ok()?;
        let file = File::of(&found);
        Some(Self { pid, file, shown })
    }

    /// Whether it is the file that this path leads to: on the host, or under the process's own
    /// root if the host's root made that. Or the one that was there, before another took its place.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        if place(&format!("/proc/{}/root", host()), path)
            .is_some_and(|place| self.is_file_of(&place))
        {
            return true;
        }
        self.has_own_root() && {
            let root = format!("/proc/{}/root", self.pid);
            place(&root, path).is_some_and(|place| self.is_file_of(&place) || self.was_at(&place))
        }
    }

    fn is_file_of(&self, place: &Place) -> bool {
        place.there && self.file.is(&place.file)
    }

    /// A removed file keeps the path that it had, as its mount has it: it is believed where the
    /// path goes through the same mount.
    fn was_at(&self, place: &Place) -> bool {
        let before = self.shown.as_os_str().as_bytes().strip_suffix(DELETED);
        self.file.mount == place.file.mount && before == Some(place.shown.as_bytes())
    }

    /// Whether its root and its mounts were made by the host's root. Others make their own in a
    /// user namespace of their own.
    fn has_own_root(&self) -> bool {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/user")).ok();
        let its = namespace(&self.pid.to_string());
        its.is_some() && its == namespace(host())
    }
}

/// The process whose mounts and users are the host's: the first one, or where that may not be looked
/// at, this one.
fn host() -> &'static str {
    match fs::read_link("/proc/1/ns/user") {
        Ok(_) => "1",
        Err(_) => "self",
    }
}

/// Where a path leads.
struct Place {
    /// The file, or the folder in which there is none.
    file: File,
    there: bool,
    /// The path after all links.
    shown: OsString,
}

/// Where a path leads under a root; links do not lead out of it.
fn place(root: &str, path: &Path) -> Option<Place> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(CWD, root, flags | OFlags::DIRECTORY, Mode::empty()).ok()?;
    let open = |path: &Path| openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT);
    let (opened, missing) = match open(path) {
        Ok(file) => (file, None),
        Err(Errno::NOENT) => (open(path.parent()?).ok()?, Some(path.file_name()?)),
        Err(_) => return None,
    };
    let found = statx(&opened, c"", AtFlags::EMPTY_PATH, WANTED).ok()?;
    Some(Place {
        file: File::of(&found),
        there: missing.is_none(),
        shown: shown(&opened, missing)?,
    })
}

/// The path of what is opened, and of a name in it.
fn shown(opened: &OwnedFd, name: Option<&OsStr>) -> Option<OsString> {
    use std::os::fd::AsRawFd;
    let path = fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).ok()?;
    let path = name.map_or(path.clone(), |name| path.join(name));
    Some(OsString::from_vec(path.into_os_string().into_vec()))
}
