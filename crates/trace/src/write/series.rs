//! The files of one table: each begins when it is needed, and is sealed when it is full.

use std::path::PathBuf;
use std::sync::Arc;

use parquet::errors;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::TypePtr;
use tailscope_output::Folder;

use super::file::UnsealedFile;
use super::sealer::{Outcome, Sealer};
use super::{Totals, encode};
use crate::{Error, Result};

/// `NAME-00000.EXTENSION` and those that follow, in one folder.
pub(super) struct FileSeries {
    held: Arc<Folder>,
    folder: PathBuf,
    name: &'static str,
    extension: &'static str,
    schema: TypePtr,
    properties: Arc<WriterProperties>,
    /// Rows of a full file.
    full: u64,
    file: Option<UnsealedFile>,
    files: u64,
    sealer: Sealer,
    totals: Totals,
}

impl FileSeries {
    /// No file yet. A file with `full` rows is sealed.
    pub(super) fn new(
        held: Arc<Folder>,
        folder: PathBuf,
        (name, extension): (&'static str, &'static str),
        schema: TypePtr,
        full: u64,
    ) -> Self {
        Self {
            held,
            folder,
            name,
            extension,
            schema,
            properties: Arc::new(encode::properties()),
            full,
            file: None,
            files: 0,
            sealer: Sealer::default(),
            totals: Totals::default(),
        }
    }

    /// The same with one file, which is never full.
    pub(super) fn of_one_file(self) -> Self {
        Self {
            full: u64::MAX,
            ..self
        }
    }

    /// Adds a group of rows, which `encode` writes into the file.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`] if they can't be written: the rows of the file are lost, and
    /// the error counts them. Sealed files stay.
    pub(super) fn add(
        &mut self,
        rows: u64,
        encode: impl FnOnce(&mut UnsealedFile) -> errors::Result<()>,
    ) -> Result<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin(rows)?,
        };
        encode(&mut file)
            .map_err(|source| Error::losing(file.sealed_path(), file.rows() + rows, source))?;
        file.add_rows(rows);
        let is_full = file.rows() >= self.full;
        self.file = Some(file);
        if is_full {
            self.close()?;
        }
        Ok(())
    }

    fn begin(&mut self, rows: u64) -> Result<UnsealedFile> {
        let name = format!("{}-{:05}.{}", self.name, self.files, self.extension);
        let path = self.folder.join(name);
        self.files += 1;
        let (schema, properties) = (self.schema.clone(), self.properties.clone());
        UnsealedFile::create(&self.held, path.clone(), schema, properties)
            .map_err(|source| Error::losing(&path, rows, source))
    }

    fn close(&mut self) -> Result<()> {
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

    /// Seals the file that is open, and waits until all are sealed.
    ///
    /// # Errors
    /// As [`add`](FileSeries::add).
    pub(super) fn finish(mut self) -> Result<Totals> {
        self.close()?;
        let outcomes = self.sealer.wait();
        self.account(outcomes)?;
        Ok(self.totals)
    }

    /// What was sealed so far.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }
}
