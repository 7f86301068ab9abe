//! Raw samples: rows of plain numbers, of which a second brings a million.
//!
//! Not a ledger: a folder of Parquet files with whatever columns the caller names, all of them INT64. A
//! file is sealed like a ledger's: written under another name, synced, renamed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::{Type, TypePtr};
use tailscope_output::Folder;

use super::Totals;
use super::encode::{self, Encoder};
use super::file::UnsealedFile;
use super::sealer::{Outcome, Sealer};
use crate::{CauseSet, Error, Result};

/// Rows that are encoded at a time.
const GROUP_ROWS: usize = 1 << 18;
/// Rows of a file: what a crash loses at most, beside those not encoded yet.
const FILE_ROWS: u64 = 1 << 23;

/// Writes samples into a folder of its own.
pub struct SamplesWriter {
    folder: PathBuf,
    held: Arc<Folder>,
    schema: TypePtr,
    encoder: Encoder,
    properties: Arc<WriterProperties>,
    sealer: Sealer,
    columns: Vec<Vec<i64>>,
    file: Option<UnsealedFile>,
    files: u64,
    totals: Totals,
}

impl SamplesWriter {
    /// Makes the folder.
    ///
    /// # Errors
    /// [`Error::Io`] if it is there already or can't be made.
    pub fn create(folder: &Path, columns: &[String]) -> Result<Self> {
        let held = Folder::make_new(folder).map_err(Error::io("create the folder", folder))?;
        let folder = folder.to_path_buf();
        let unencodable = |source| Error::Encode {
            path: folder.clone(),
            source,
        };
        let fields = columns
            .iter()
            .map(|name| {
                Type::primitive_type_builder(name, Physical::INT64)
                    .with_repetition(Repetition::REQUIRED)
                    .build()
                    .map(Arc::new)
            })
            .collect::<parquet::errors::Result<Vec<_>>>()
            .map_err(unencodable)?;
        let schema = Type::group_type_builder("sample")
            .with_fields(fields)
            .build()
            .map(Arc::new)
            .map_err(unencodable)?;
        Ok(Self {
            encoder: Encoder::new(Arc::clone(&schema), CauseSet::default()),
            schema,
            properties: Arc::new(encode::properties()),
            sealer: Sealer::default(),
            columns: vec![Vec::with_capacity(GROUP_ROWS); columns.len()],
            file: None,
            files: 0,
            totals: Totals::default(),
            folder,
            held: Arc::new(held),
        })
    }

    /// Adds rows, one after the other, each with a number for every column.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`] if they can't be written: those of the file are lost, and
    /// the error says how many. Files that were sealed before stay.
    pub fn push(&mut self, rows: &[u64]) -> Result<()> {
        for row in rows.chunks_exact(self.columns.len()) {
            for (column, value) in self.columns.iter_mut().zip(row) {
                column.push(*value as i64);
            }
            if self.columns[0].len() == GROUP_ROWS {
                self.encode()?;
            }
        }
        Ok(())
    }

    fn encode(&mut self) -> Result<()> {
        let rows = self.columns[0].len() as u64;
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin_file(rows)?,
        };
        if let Err(source) = file.encode_numbers(&mut self.encoder, &self.columns) {
            return Err(Error::losing(
                file.sealed_path(),
                file.rows() + rows,
                source,
            ));
        }
        self.columns.iter_mut().for_each(Vec::clear);
        file.add_rows(rows);
        let is_whole = file.rows() >= FILE_ROWS;
        self.file = Some(file);
        if is_whole {
            self.close_file()?;
        }
        Ok(())
    }

    fn begin_file(&mut self, rows: u64) -> Result<UnsealedFile> {
        let path = self
            .folder
            .join(format!("samples-{:05}.parquet", self.files));
        self.files += 1;
        let (schema, properties) = (self.schema.clone(), self.properties.clone());
        UnsealedFile::create(&self.held, path.clone(), schema, properties)
            .map_err(|source| Error::losing(&path, rows, source))
    }

    fn close_file(&mut self) -> Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let (path, rows) = (file.sealed_path().to_path_buf(), file.rows());
        let closed = file
            .close()
            .map_err(|source| Error::losing(&path, rows, source))?;
        self.sealer.submit(closed);
        let outcomes = self.sealer.finished();
        self.account(outcomes)
    }

    fn account(&mut self, outcomes: Vec<Outcome>) -> Result<()> {
        for outcome in outcomes {
            self.totals.bytes += outcome.result?;
            self.totals.rows += outcome.rows;
            self.totals.files += 1;
        }
        Ok(())
    }

    /// Writes what is left and seals it.
    pub fn finish(mut self) -> Result<Totals> {
        if !self.columns[0].is_empty() {
            self.encode()?;
        }
        self.close_file()?;
        let outcomes = self.sealer.wait();
        self.account(outcomes)?;
        Ok(self.totals)
    }

    /// What was sealed so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }
}
