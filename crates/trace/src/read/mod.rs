//! Reading a ledger: its `ledger.json`, its sealed files, its rows.
//!
//! ```no_run
//! # fn main() -> tailscope_trace::Result<()> {
//! let ledger = tailscope_trace::read::Ledger::open("LEDGER")?;
//! println!("{} rows in {} files", ledger.count_rows()?, ledger.files().len());
//! for row in ledger.rows()? {
//!     let row = row?;
//!     println!("{} took {} ns", row.span, row.wall_ns);
//! }
//! # Ok(())
//! # }
//! ```

mod file;
mod row;

use std::fs;
use std::path::{Path, PathBuf};

pub use self::file::LedgerFile;
pub use self::row::StoredSpan;
use crate::{Error, LedgerInfo, Result};

/// A ledger on disk, as it was when it was opened.
#[derive(Clone, Debug)]
pub struct Ledger {
    folder: PathBuf,
    info: LedgerInfo,
    files: Vec<PathBuf>,
}

impl Ledger {
    /// Reads `ledger.json` and lists the sealed files. A ledger that is still being recorded, or
    /// that was cut off, can be opened like any other.
    ///
    /// # Errors
    /// [`Error::NoLedger`] where there is none, [`Error::Info`] and [`Error::Newer`] where its
    /// `ledger.json` can't be understood, [`Error::Io`] where it can't be read.
    pub fn open(folder: impl AsRef<Path>) -> Result<Ledger> {
        let folder = folder.as_ref().to_path_buf();
        let info = LedgerInfo::read(&folder)?;
        let mut files = Vec::new();
        // As deep as host=…/hour=…/, wherever a person may have moved the partitions.
        list(&folder, 3, &mut files)?;
        files.sort_unstable();
        Ok(Ledger {
            folder,
            info,
            files,
        })
    }

    /// The contents of `ledger.json`.
    #[must_use]
    pub fn info(&self) -> &LedgerInfo {
        &self.info
    }

    /// The sealed files, by host, hour and number.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Rows in the sealed files, from their footers: 0 in an empty ledger.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Foreign`], [`Error::Damaged`] or [`Error::Io`] of the first
    /// file that can't be read.
    pub fn count_rows(&self) -> Result<u64> {
        self.files
            .iter()
            .map(|path| Ok(LedgerFile::open(path)?.rows_in_file()))
            .sum()
    }

    /// The rows of every file, file by file, in the order in which they were written.
    ///
    /// # Errors
    /// [`Error::Empty`] if no file is sealed; the iterator's items are those of
    /// [`count_rows`](Ledger::count_rows), and it ends after one.
    pub fn rows(&self) -> Result<impl Iterator<Item = Result<StoredSpan>> + use<>> {
        if self.files.is_empty() {
            return Err(Error::Empty {
                path: self.folder.clone(),
            });
        }
        let mut failed = false;
        let rows = self.files.clone().into_iter().flat_map(|path| {
            match LedgerFile::open(&path).and_then(LedgerFile::rows) {
                Ok(rows) => Box::new(rows) as Box<dyn Iterator<Item = _>>,
                Err(error) => Box::new(std::iter::once(Err(error))),
            }
        });
        Ok(rows.take_while(move |row| !std::mem::replace(&mut failed, row.is_err())))
    }
}

/// The files ending in `.parquet` in `folder` and in folders under it.
fn list(folder: &Path, depth: u32, files: &mut Vec<PathBuf>) -> Result<()> {
    let failed = |source| Error::io("list the files of", folder)(source);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_type().map_err(failed)?.is_dir() {
            if depth > 1 {
                list(&path, depth - 1, files)?;
            }
        } else if path
            .extension()
            .is_some_and(|extension| extension == "parquet")
        {
            files.push(path);
        }
    }
    Ok(())
}
