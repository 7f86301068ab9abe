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
    /// There is no ledger in the folder.
    #[error("{} is no ledger: it has no {}", path.display(), crate::LEDGER_JSON)]
    NoLedger {
        /// The folder.
        path: PathBuf,
    },
    /// The ledger is being written to, or opened by a reader.
    #[error("{} is in use: it is being recorded, read or edited; try again later", path.display())]
    InUse {
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
    /// A Parquet file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Decode {
        /// The file.
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
    /// `ledger.json` could not be encoded.
    #[error("cannot write {}: {source}", path.display())]
    Info {
        /// The file.
        path: PathBuf,
        /// What the JSON library said.
        source: serde_json::Error,
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
