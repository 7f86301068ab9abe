//! Folders and files that results are written to, most often by root, and perhaps in a place where
//! somebody else may write.
//!
//! A file is always a new one: nothing is opened through a name that somebody else may have put
//! there, as a link to a file that only root may write. A folder is held open from its check on, so it
//! stays the same one whatever happens to its name. Results tell what a machine does, so root's are
//! for root alone.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, fsync, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// A folder that only we may write to.
#[derive(Debug)]
pub struct Folder {
    held: OwnedFd,
    path: PathBuf,
}

/// Whether results are root's.
#[must_use]
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// The mode of a new folder, before the umask.
fn folder_mode() -> u32 {
    if is_root() { 0o700 } else { 0o755 }
}

/// The mode of a new file, before the umask.
fn file_mode() -> Mode {
    Mode::from_raw_mode(if geteuid().is_root() { 0o600 } else { 0o644 })
}

impl Folder {
    /// Opens a folder, and makes it first if it is not there.
    ///
    /// # Errors
    /// If it can't be made, or if somebody else owns it or may write to it.
    pub fn make(path: &Path) -> io::Result<Self> {
        make_parents(path)?;
        match DirBuilder::new().mode(folder_mode()).create(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        Self::open(path)
    }

    /// Makes a folder that is not there.
    ///
    /// # Errors
    /// If it is there, or can't be made.
    pub fn make_new(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(folder_mode()).create(path)?;
        Self::open(path)
    }

    fn open(path: &Path) -> io::Result<Self> {
        let about = fs::symlink_metadata(path)?;
        let is_trusted = about.uid() == 0 || about.uid() == geteuid().as_raw();
        if about.is_symlink() && !is_trusted {
            return Err(io::Error::other(format!(
                "it is a link of user {}; choose a folder of your own",
                about.uid()
            )));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let follow = if about.is_symlink() {
            OFlags::empty()
        } else {
            OFlags::NOFOLLOW
        };
        Self::checked(openat(CWD, path, flags | follow, Mode::empty())?, path)
    }

    fn checked(held: OwnedFd, path: &Path) -> io::Result<Self> {
        let (about, me) = (fstat(&held)?, geteuid().as_raw());
        let refused = if about.st_uid != me {
            format!(
                "it belongs to user {}, who could redirect files with links; choose another folder, \
                 or run chown {me} on it",
                about.st_uid
            )
        } else if about.st_mode & 0o022 != 0 {
            "others may write to it, and could redirect files with links; choose another folder, \
             or run chmod go-w on it"
                .to_owned()
        } else {
            let path = path.to_owned();
            return Ok(Self { held, path });
        };
        Err(io::Error::new(io::ErrorKind::PermissionDenied, refused))
    }

    /// Its path, as it was given.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to this very folder as long as this lives.
    #[must_use]
    pub fn held_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.held.as_raw_fd()))
    }

    /// The folder of this name in it, made if it is not there.
    pub fn folder(&self, name: &str) -> io::Result<Self> {
        match mkdirat(&self.held, name, Mode::from_raw_mode(folder_mode())) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = openat(&self.held, name, flags, Mode::empty())?;
        Self::checked(held, &self.path.join(name))
    }

    /// A new, empty file of this name, in the place of what may be there; to be read, too.
    pub fn create(&self, name: &str) -> io::Result<File> {
        create_in(&self.held, name)
    }

    /// Gives a file another name in the folder; one that is there is replaced.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.held, from, &self.held, to)?)
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.held, name, AtFlags::empty())?)
    }

    /// Makes the names in it durable: a rename survives a power cut only after this.
    pub fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.held)?)
    }
}

/// Writes a whole file, in the place of what may be there: a reader sees the old one or the new
/// one, and a link is replaced, never followed. Also in a folder of somebody else's.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    write_with(path, |file| file.write_all(contents.as_ref()))
}

/// The same, of what `fill` writes.
pub fn write_with(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .ok_or_else(|| io::Error::other("its name is not UTF-8, or names a folder"))?;
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, parent.unwrap_or(Path::new(".")), flags, Mode::empty())?;
    // A device or a pipe that is named, as /dev/stdout, is written to and not replaced.
    if fs::metadata(path).is_ok_and(|about| !about.is_file() && !about.is_dir()) {
        return fill(&mut fs::OpenOptions::new().write(true).open(path)?);
    }
    let unfinished = format!(".{name}.{}.tmp", std::process::id());
    let mut file = create_in(&folder, &unfinished)?;
    let done = fill(&mut file).and_then(|()| Ok(renameat(&folder, &unfinished, &folder, name)?));
    if done.is_err() {
        let _ = unlinkat(&folder, &unfinished, AtFlags::empty());
    }
    done
}

fn create_in(folder: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create = || openat(&folder, name, flags, file_mode());
    match create() {
        // Left by one that was killed, or put there: its name goes, and what it may lead to stays.
        Err(Errno::EXIST) => unlinkat(&folder, name, AtFlags::empty()).and_then(|()| create()),
        done => done,
    }
    .map(File::from)
    .map_err(io::Error::from)
}

/// Those folders hold nothing of ours but the way to it.
fn make_parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::create_dir_all(parent),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").mode() & 0o777
    }

    #[test]
    fn links_are_replaced_and_not_followed() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let victim = place.path().join("victim");
        fs::write(&victim, "precious").expect("written");
        let folder = Folder::make(&place.path().join("deep").join("ledger")).expect("made");
        let link = folder.path().join("ledger.json.tmp");
        symlink(&victim, &link).expect("linked");
        let mut file = folder.create("ledger.json.tmp").expect("created");
        file.write_all(b"{}").expect("written");
        folder
            .rename("ledger.json.tmp", "ledger.json")
            .expect("renamed");
        folder.sync().expect("synced");
        let page = place.path().join("page.html");
        symlink(&victim, &page).expect("linked");
        write(&page, "<html>").expect("written");
        assert_eq!(fs::read_to_string(&victim).expect("there"), "precious");
        assert_eq!(fs::read_to_string(&page).expect("there"), "<html>");
        let written = fs::read_to_string(folder.path().join("ledger.json"));
        assert_eq!(written.expect("there"), "{}");
        folder.remove("ledger.json").expect("removed");
        symlink(place.path(), folder.path().join("host=a")).expect("linked");
        assert!(folder.folder("host=a").is_err(), "a folder through a link");
    }

    #[test]
    fn roots_results_are_roots_alone() {
        if !geteuid().is_root() {
            println!("skipped: only root's are");
            return;
        }
        let place = tempfile::tempdir().expect("a temporary folder");
        let folder = Folder::make(&place.path().join("ledger")).expect("made");
        let inner = folder.folder("host=a").expect("made");
        drop(inner.create("0.parquet").expect("created"));
        let page = place.path().join("page.html");
        write(&page, "<html>").expect("written");
        assert_eq!(mode(folder.path()), 0o700);
        assert_eq!(mode(inner.path()), 0o700);
        assert_eq!(mode(&inner.path().join("0.parquet")), 0o600);
        assert_eq!(mode(&page), 0o600);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let open = place.path().join("open");
        fs::create_dir(&open).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("opened");
        let error = Folder::make(&open).expect_err("anybody may write to it");
        assert!(error.to_string().contains("chmod go-w"), "{error}");
        if !geteuid().is_root() {
            println!("skipped: only root can give a folder away");
            return;
        }
        let foreign = place.path().join("foreign");
        fs::create_dir(&foreign).expect("made");
        chown(&foreign, Some(65534), None).expect("given away");
        let error = Folder::make(&foreign).expect_err("somebody else's");
        assert!(error.to_string().contains("user 65534"), "{error}");
        let link = place.path().join("link");
        symlink("/etc", &link).expect("linked");
        std::os::unix::fs::lchown(&link, Some(65534), None).expect("given away");
        let error = Folder::make(&link).expect_err("somebody else's link");
        assert!(error.to_string().contains("link of user 65534"), "{error}");
    }
}
