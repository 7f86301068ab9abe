//! The folder of a ledger before its first row.

use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;

use crate::{Error, LEDGER_JSON, Result};

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

/// Makes the folder hold no ledger.
pub(crate) fn prepare(folder: &Path, existing: Existing) -> Result<()> {
    fs::create_dir_all(folder).map_err(|source| Error::losing_io("create", folder, 0, source))?;
    let partitions = entries(folder, |name| name.starts_with("host="))
        .map_err(Error::io("list the files of", folder))?;
    let info = folder.join(LEDGER_JSON);
    // Partitions without ledger.json are what an overwrite leaves that was cut off.
    if !info.exists() && partitions.is_empty() {
        return Ok(());
    }
    match existing {
        Existing::Refuse => Err(Error::Exists {
            path: folder.to_path_buf(),
        }),
        Existing::Overwrite => {
            // First what makes it a ledger: cut off here, the rest is not taken for a whole one.
            match fs::remove_file(&info) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", &info)(source));
                }
                _ => {}
            }
            partitions.iter().try_for_each(|host| {
                clear_host(&host.path()).map_err(Error::io("remove the files of", &host.path()))
            })
        }
    }
}

fn clear_host(host: &Path) -> io::Result<()> {
    for hour in entries(host, |name| name.starts_with("hour="))? {
        for file in entries(&hour.path(), |name| {
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

/// The entries whose names are `wanted`. A symbolic link counts only where it is to be removed
/// itself: nothing outside the ledger's folder is touched through one.
fn entries(folder: &Path, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<DirEntry>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_wanted = entry.file_name().to_str().is_some_and(&wanted);
        let is_file = entry.path().extension().is_some();
        if is_wanted && (is_file || entry.file_type()?.is_dir()) {
            found.push(entry);
        }
    }
    Ok(found)
}
