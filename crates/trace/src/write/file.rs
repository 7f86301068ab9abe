//! One Parquet file from its creation to the moment when it is sealed.
//!
//! Its name ends in `.parquet.tmp` at first. To seal it, the sealer's thread syncs the file,
//! renames it to `.parquet`, and then syncs its folders. So a `.parquet` file is always whole.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;

use tailscope_output::Folder;

use super::checksum::Sink;
use super::encode::Encoder;
use super::names::Names;
use crate::columns::{Columns, TableColumn};
use crate::partition;

/// A file that exists only as long as this value, until it is sealed.
struct Unsealed {
    /// From the one that it is in to the ledger's: each may get a name with the file that is new.
    folders: Vec<Arc<Folder>>,
    name: String,
    file: Arc<File>,
    is_sealed: bool,
}

impl Drop for Unsealed {
    fn drop(&mut self) {
        if !self.is_sealed {
            // Best effort: readers pass over the name in any case.
            let _ = self.folders[0].remove(&self.name);
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
        folder: &Arc<Folder>,
        sealed_path: PathBuf,
        schema: TypePtr,
        properties: Arc<WriterProperties>,
    ) -> Result<UnsealedFile> {
        let mut folders = vec![Arc::clone(folder)];
        let inside = sealed_path.strip_prefix(folder.path());
        for name in inside.ok().and_then(Path::parent).into_iter().flatten() {
            let inner = folders[0].folder(&name.to_string_lossy())?;
            folders.insert(0, Arc::new(inner));
        }
        let name = name_of(&partition::unsealed(&sealed_path));
        let file = Arc::new(folders[0].create(&name)?);
        let unsealed = Unsealed {
            folders,
            name,
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

    /// Encodes a row group of a table beside the rows.
    pub(crate) fn encode_table(
        &mut self,
        encoder: &mut Encoder,
        columns: &[TableColumn],
        names: &Names,
    ) -> Result<()> {
        encoder.table(&mut self.writer, columns, names)
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
        let folders = &self.unsealed.folders;
        folders[0].rename(&self.unsealed.name, &name_of(&self.sealed_path))?;
        self.unsealed.is_sealed = true;
        folders.iter().try_for_each(|folder| folder.sync())?;
        Ok(bytes)
    }
}

/// The last part of a path of the writer's own making.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}
