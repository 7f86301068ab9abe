//! Writing a table anew, in its own place, with other rows.
//!
//! Its file is replaced by a rename when the new one is whole: cut off at any moment, the ledger has the old
//! one or the new one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::SerializedFileReader;
use parquet::record::{Field, Row};
use rustix::fs::{FlockOperation, flock};
use tailscope_output::Folder;

use super::table::{Kind, TableWriter};
use crate::{Error, LEDGER_JSON, Result};

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum OwnedValue {
    /// Of a [`Kind::Number`].
    Number(i64),
    /// Of a [`Kind::Real`].
    Real(f64),
    /// Of a [`Kind::Text`].
    Text(String),
}

impl OwnedValue {
    /// The value of a column that an older file lacks: 0, or an empty text.
    fn absent(kind: Kind) -> Self {
        match kind {
            Kind::Number => Self::Number(0),
            Kind::Real => Self::Real(0.0),
            Kind::Text => Self::Text(String::new()),
        }
    }

    /// The value of a column of that kind; `None`: the field is of another one.
    fn of(field: Field, kind: Kind) -> Option<Self> {
        match (field, kind) {
            (Field::Long(value), Kind::Number) => Some(Self::Number(value)),
            (Field::Double(value), Kind::Real) => Some(Self::Real(value)),
            (Field::Str(text), Kind::Text) => Some(Self::Text(text)),
            _ => None,
        }
    }
}

/// A table [of one file](TableWriter::of_one_file) in a ledger to which nobody writes. While this exists,
/// nobody else can edit the ledger's tables.
pub struct TableEditor {
    held: Arc<Folder>,
    /// The table's folder.
    folder: PathBuf,
    name: &'static str,
    columns: &'static [(&'static str, Kind)],
    /// Where the lock is.
    _marked: File,
}

impl TableEditor {
    /// Opens the table `name` in a folder of a ledger. It may have no file.
    ///
    /// # Errors
    /// [`Error::NoLedger`] if the folder has none, [`Error::InUse`] if it is being recorded, read or edited,
    /// and [`Error::Io`] if this user may not edit it, or if others may, too.
    pub fn open(
        ledger: &Path,
        folder: &str,
        name: &'static str,
        columns: &'static [(&'static str, Kind)],
    ) -> Result<Self> {
        fs::metadata(ledger.join(LEDGER_JSON)).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::NoLedger {
                path: ledger.to_path_buf(),
            },
            _ => Error::io("open", ledger)(e),
        })?;
        let held = Folder::make(ledger).map_err(Error::io("edit", ledger))?;
        let marked = File::open(held.held_path()).map_err(Error::io("open", ledger))?;
        // A recorder has a shared lock.
        match flock(&marked, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::InUse {
                path: ledger.to_path_buf(),
            }),
            done => done.map_err(|e| Error::io("lock", ledger)(e.into())),
        }?;
        Ok(Self {
            held: Arc::new(held),
            folder: ledger.join(folder),
            name,
            columns,
            _marked: marked,
        })
    }

    /// Hands on all rows in their order, each with a value for each column.
    ///
    /// # Errors
    /// [`Error::Decode`] if the file is damaged or has other columns, and what `each` gives.
    pub fn rows(&self, mut each: impl FnMut(&[OwnedValue]) -> Result<()>) -> Result<()> {
        let file = format!("{}-00000.pq", self.name);
        let path = self.folder.join(&file);
        let failed = |source| Error::Decode {
            path: path.clone(),
            source,
        };
        let Some(file) = self.open_inside(&file).map_err(Error::io("open", &path))? else {
            return Ok(());
        };
        for row in SerializedFileReader::new(file).map_err(failed)? {
            let values = self.values(row.map_err(failed)?);
            let other = || failed(ParquetError::General("it has other columns".to_owned()));
            each(&values.ok_or_else(other)?)?;
        }
        Ok(())
    }

    /// `None`: there is no such file.
    fn open_inside(&self, file: &str) -> io::Result<Option<File>> {
        let name = self.folder.file_name().unwrap_or_default();
        let inside = self.held.held_path().join(name).join(file);
        match fs::symlink_metadata(inside) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
            Ok(about) if !about.is_file() => {
                return Err(io::Error::other("it is not a regular file"));
            }
            Ok(_) => {}
        }
        // Nobody else may write to that folder either.
        let folder = self.held.folder(&name.to_string_lossy())?;
        File::open(folder.held_path().join(file)).map(Some)
    }

    fn values(&self, row: Row) -> Option<Vec<OwnedValue>> {
        let mut fields = row.into_columns();
        let value = |(name, kind): &(&str, Kind)| {
            let place = fields.iter().position(|(field, _)| field == name);
            match place.map(|place| fields.swap_remove(place).1) {
                Some(field) => OwnedValue::of(field, *kind),
                None => Some(OwnedValue::absent(*kind)),
            }
        };
        self.columns.iter().map(value).collect()
    }

    /// What takes the place of the table when it is finished.
    ///
    /// # Errors
    /// [`Error::Encode`], for columns that can't be.
    pub fn replace(&self) -> Result<TableWriter> {
        TableWriter::create(&self.held, self.folder.clone(), self.name, self.columns)
            .map(TableWriter::of_one_file)
    }
}
