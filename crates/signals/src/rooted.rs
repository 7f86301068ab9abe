//! Files as a process with another root sees them.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};

/// Opens a file as a process with this root sees it: links do not lead out of it. What is no plain
/// file is an error, and is not waited for.
pub fn open(root: &Path, path: &Path) -> io::Result<File> {
    let root = rustix::fs::openat(
        CWD,
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let file = openat2(
        &root,
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::IN_ROOT,
    )?;
    let file = File::from(file);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no file"))
    }
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
}
