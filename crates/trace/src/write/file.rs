//! One Parquet file from its creation to the moment when it is handed to be sealed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use super::checksum::Sink;
use super::encode::Encoder;
use super::names::Names;
use crate::columns::Columns;
use crate::partition;

/// A file that exists only as long as this value, until it is sealed.
struct Unsealed {
    path: PathBuf,
    file: Arc<File>,
    is_sealed: bool,
}

impl Drop for Unsealed {
    fn drop(&mut self) {
        if !self.is_sealed {
            // Best effort: readers pass over the name in any case.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file that rows are still added to. Dropped, it removes itself.
pub(crate) struct UnsealedFile {
    // Before the file itself, so that the encoder has let go of it when it is removed.
    writer: SerializedFileWriter<Sink>,
    unsealed: Unsealed,
    sealed_path: PathBuf,
    rows: u64,
}

impl UnsealedFile {
    pub(crate) fn create(
        sealed_path: PathBuf,
        schema: TypePtr,
        properties: Arc<WriterProperties>,
    ) -> Result<UnsealedFile> {
        if let Some(folder) = sealed_path.parent() {
            fs::create_dir_all(folder)?;
        }
        let path = partition::unsealed(&sealed_path);
        // To be read too: its checksum goes where the footer has room for it.
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)?;
        let file = Arc::new(file);
        let unsealed = Unsealed {
            path,
            file: file.clone(),
            is_sealed: false,
        };
        let writer = SerializedFileWriter::new(Sink::new(file), schema, properties)?;
        Ok(UnsealedFile {
            writer,
            unsealed,
            sealed_path,
            rows: 0,
        })
    }

    /// Encodes a row group. After an error the file is only good to be dropped.
    pub(crate) fn encode(
        &mut self,
        encoder: &mut Encoder,
        columns: &Columns,
        names: &Names,
    ) -> Result<()> {
        encoder.row_group(&mut self.writer, columns, names)
    }

    /// Encodes a row group of plain numbers, by column.
    pub(crate) fn encode_numbers(
        &mut self,
        encoder: &mut Encoder,
        columns: &[Vec<i64>],
    ) -> Result<()> {
        encoder.numbers(&mut self.writer, columns)
    }

    pub(crate) fn add_rows(&mut self, rows: u64) {
        self.rows += rows;
    }

    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    pub(crate) fn sealed_path(&self) -> &Path {
        &self.sealed_path
    }

    /// Writes the footer, and the file's checksum into it.
    pub(crate) fn close(self) -> Result<ClosedFile> {
        let UnsealedFile {
            mut writer,
            unsealed,
            sealed_path,
            rows,
        } = self;
        writer.finish()?;
        // Everything is flushed by now.
        writer.inner_mut().fill_in()?;
        Ok(ClosedFile {
            unsealed,
            sealed_path,
            rows,
        })
    }
}

/// A whole file that is not sealed yet. Dropped, it removes itself.
pub(crate) struct ClosedFile {
    unsealed: Unsealed,
    pub(crate) sealed_path: PathBuf,
    pub(crate) rows: u64,
}

impl ClosedFile {
    /// Syncs the file and gives it its name; returns its length in bytes.
    pub(crate) fn seal(mut self) -> std::io::Result<u64> {
        self.unsealed.file.sync_all()?;
        let bytes = self.unsealed.file.metadata()?.len();
        fs::rename(&self.unsealed.path, &self.sealed_path)?;
        self.unsealed.is_sealed = true;
        // hour=…, host=… and the ledger: each may hold a name that is new.
        for folder in self.sealed_path.ancestors().skip(1).take(3) {
            crate::info::sync_folder(folder)?;
        }
        Ok(bytes)
    }
}
