//! The folder of a ledger before its first row.

use std::fs::{self, DirEntry, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use tailscope_output::Folder;

use crate::{Error, LEDGER_JSON, Result};

/// The ledger's folder of the tables of stacks.
pub const STACKS: &str = "_stacks";

/// What to do with a ledger that is there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Leave it alone and fail.
    #[default]
    Refuse,
    /// Remove it: `ledger.json` and the files in its partitions, and nothing else that may lie in
    /// the folder.
    Overwrite,
}

/// Opens the folder, and makes it hold no ledger.
pub(crate) fn prepare(folder: &Path, existing: Existing) -> Result<Folder> {
    let held = opened(folder)?;
    let inside = held.held_path();
    if !holds_ledger(&inside)? {
        return Ok(held);
    }
    match existing {
        Existing::Refuse => Err(exists(folder)),
        Existing::Overwrite => clear(&inside).map(|()| held),
    }
}

/// Whether a ledger may begin in this folder: asked before anything is measured for it.
///
/// # Errors
/// [`Error::Exists`] if it holds a ledger and `existing` does not allow to replace it; [`Error::Io`]
/// if it is no folder, or another user's.
pub fn may_begin(folder: &Path, existing: Existing) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    let held = opened(folder)?;
    match existing {
        Existing::Refuse if holds_ledger(&held.held_path())? => Err(exists(folder)),
        _ => Ok(()),
    }
}

/// The folder, which is made if need be, and is not another user's.
fn opened(folder: &Path) -> Result<Folder> {
    Folder::make(folder).map_err(|source| Error::losing_io("create", folder, 0, source))
}

fn exists(folder: &Path) -> Error {
    Error::Exists {
        path: folder.to_path_buf(),
    }
}

/// Partitions without ledger.json are what an overwrite leaves that was cut off.
fn holds_ledger(folder: &Path) -> Result<bool> {
    let has_info = folder.join(LEDGER_JSON).symlink_metadata().is_ok();
    Ok(has_info || !partitions(folder)?.is_empty())
}

/// Marks the folder as one that is being written to, as long as the file is open: by a shared lock
/// on it, which the kernel takes away however the process ends. So a reader can tell a recording
/// that goes on from one that was cut off.
///
/// Best effort: on a file system without locks a reader can't tell.
pub(crate) fn mark(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    flock(&file, FlockOperation::NonBlockingLockShared).ok()?;
    Some(file)
}

/// Removes the ledger in `folder`: `ledger.json` and the files in its partitions. The folder and
/// whatever else lies in it stay.
///
/// # Errors
/// [`Error::Io`] with the first file or folder that can't be removed; those before it are gone.
pub fn clear(folder: &Path) -> Result<()> {
    // First what makes it a ledger: cut off here, the rest is not taken for a whole one.
    for name in [LEDGER_JSON.to_owned(), format!("{LEDGER_JSON}.tmp")] {
        let info = folder.join(name);
        match fs::remove_file(&info) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &info)(source));
            }
            _ => {}
        }
    }
    partitions(folder)?.iter().try_for_each(|host| {
        clear_host(&host.path()).map_err(Error::io("remove the files of", &host.path()))
    })?;
    tables(folder)?.iter().try_for_each(|tables| {
        let path = tables.path();
        clear_tables(&path).map_err(Error::io("remove the files of", &path))
    })
}

/// Folders of tables beside the rows.
fn tables(folder: &Path) -> Result<Vec<DirEntry>> {
    entries(folder, Kind::Folder, |name| name == STACKS)
        .map_err(Error::io("list the files of", folder))
}

fn clear_tables(folder: &Path) -> io::Result<()> {
    let ours = |name: &str| name.ends_with(".pq") || name.ends_with(".parquet.tmp");
    for file in entries(folder, Kind::File, ours)? {
        fs::remove_file(file.path())?;
    }
    remove_if_empty(folder)
}

fn partitions(folder: &Path) -> Result<Vec<DirEntry>> {
    entries(folder, Kind::Folder, |name| name.starts_with("host="))
        .map_err(Error::io("list the files of", folder))
}

fn clear_host(host: &Path) -> io::Result<()> {
    for hour in entries(host, Kind::Folder, |name| name.starts_with("hour="))? {
        for file in entries(&hour.path(), Kind::File, |name| {
            name.ends_with(".parquet") || name.ends_with(".parquet.tmp")
        })? {
            fs::remove_file(file.path())?;
        }
        remove_if_empty(&hour.path())?;
    }
    remove_if_empty(host)
}

fn remove_if_empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Folder,
    /// A file, or a link, which is itself what is removed.
    File,
}

/// The entries of this kind whose names are `wanted`. A symbolic link is no folder: nothing
/// outside the ledger's folder is touched through one.
fn entries(folder: &Path, kind: Kind, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<DirEntry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        if is_folder == (kind == Kind::Folder) && entry.file_name().to_str().is_some_and(&wanted) {
            found.push(entry);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_removed_through_a_link() {
        let elsewhere = tempfile::tempdir().expect("a folder");
        let hour = elsewhere.path().join("hour=2026-01-01T00");
        fs::create_dir(&hour).expect("made");
        fs::write(hour.join("000000.parquet"), "precious").expect("written");
        let ledger = tempfile::tempdir().expect("a folder");
        for host in ["host=plain", "host=with.dot"] {
            std::os::unix::fs::symlink(elsewhere.path(), ledger.path().join(host)).expect("linked");
        }
        fs::write(ledger.path().join(LEDGER_JSON), "{}").expect("written");
        clear(ledger.path()).expect("cleared");
        assert!(hour.join("000000.parquet").exists());
        assert!(!ledger.path().join(LEDGER_JSON).exists());
    }
}
