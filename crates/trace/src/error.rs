//! What can go wrong with a ledger, in words for the person who runs the command.

use std::io;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;

/// The result of an operation on a ledger.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong with a ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder to write to holds a ledger already.
    #[error("{} already holds a ledger: choose another folder, or ask to overwrite it", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The disk (or the quota on it) is full. What was sealed before stays readable.
    #[error("no space left for {}: {lost_rows} rows were not written; files that were sealed before are intact", path.display())]
    Full {
        /// The file that could not be written; it was removed.
        path: PathBuf,
        /// Rows lost with it.
        lost_rows: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A call of the system failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was tried, as in "create".
        doing: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A Parquet file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Encode {
        /// The file; it was removed.
        path: PathBuf,
        /// What the Parquet library said.
        source: ParquetError,
    },
    /// A row's name was interned by another writer.
    #[error("span name {index} is not in this ledger's table of {known} names")]
    UnknownName {
        /// The name's index.
        index: u32,
        /// How many names the writer knows.
        known: u32,
    },
    /// There is no ledger at that path.
    #[error("{} is not a ledger: it has no ledger.json", path.display())]
    NoLedger {
        /// The folder.
        path: PathBuf,
    },
    /// The ledger has no sealed file: nothing was recorded, or the recording was cut off before
    /// its first file was sealed.
    #[error("the ledger {} is empty: no file of it was sealed", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// `ledger.json` is not what this version expects.
    #[error("can't parse {}: {source}", path.display())]
    Info {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// The ledger's schema is newer than this program.
    #[error("{} has schema {schema}, but this program reads up to {known}: use a newer tailscope", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema version.
        schema: u32,
        /// The newest one known here.
        known: u32,
    },
    /// A Parquet file that begins as one and does not end as one.
    #[error("{} is truncated: it was cut off or is still being copied ({bytes} bytes)", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
    },
    /// A `.parquet` file in the ledger that Tailscope did not write.
    #[error("{} is not a file of a ledger: {why}", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is missing or different.
        why: String,
    },
    /// The contents of a file can't be decoded.
    #[error("{} is damaged: {source}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the Parquet library said.
        source: ParquetError,
    },
}

impl Error {
    /// Whether the disk or the quota on it was full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(self, Error::Full { .. })
    }

    pub(crate) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io {
            doing,
            path,
            source,
        }
    }

    /// An error that cost the rows of a file: the full disk is told apart, wherever it is hidden.
    pub(crate) fn losing(path: &Path, lost_rows: u64, source: ParquetError) -> Error {
        let path = path.to_path_buf();
        match source {
            ParquetError::External(inner) => match inner.downcast::<io::Error>() {
                Ok(source) => Error::losing_io("write", &path, lost_rows, *source),
                Err(inner) => Error::Encode {
                    path,
                    source: ParquetError::External(inner),
                },
            },
            source => Error::Encode { path, source },
        }
    }

    pub(crate) fn losing_io(
        doing: &'static str,
        path: &Path,
        lost_rows: u64,
        source: io::Error,
    ) -> Error {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full {
                path,
                lost_rows,
                source,
            },
            _ => Error::Io {
                doing,
                path,
                source,
            },
        }
    }
}
