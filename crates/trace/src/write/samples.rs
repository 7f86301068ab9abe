//! Raw samples: rows of plain numbers, of which a second brings a million.
//!
//! Not a ledger: a folder of Parquet files with whatever columns the caller names, all of them INT64. A
//! file is sealed like a ledger's: written under another name, synced, renamed.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Repetition, Type as Physical};
use parquet::schema::types::Type;
use tailscope_output::Folder;

use super::Totals;
use super::encode::Encoder;
use super::series::FileSeries;
use crate::{CauseSet, Error, Result};

/// Rows that are encoded at a time.
const GROUP_ROWS: usize = 1 << 18;
/// Rows of a file: what a crash loses at most, beside those not encoded yet.
const FILE_ROWS: u64 = 1 << 23;

/// Writes samples into a folder of its own.
pub struct SamplesWriter {
    files: FileSeries,
    encoder: Encoder,
    columns: Vec<Vec<i64>>,
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
        let of = ("samples", "parquet");
        Ok(Self {
            encoder: Encoder::new(Arc::clone(&schema), CauseSet::default()),
            files: FileSeries::new(Arc::new(held), folder, of, schema, FILE_ROWS),
            columns: vec![Vec::with_capacity(GROUP_ROWS); columns.len()],
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
        let (encoder, columns) = (&mut self.encoder, &self.columns);
        let added = self
            .files
            .add(rows, |file| file.encode_numbers(encoder, columns));
        self.columns.iter_mut().for_each(Vec::clear);
        added
    }

    /// Writes what is left and seals it.
    pub fn finish(mut self) -> Result<Totals> {
        if !self.columns[0].is_empty() {
            self.encode()?;
        }
        self.files.finish()
    }

    /// What was sealed so far.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.files.totals()
    }
}
