//! One sealed file.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::StoredSpan;
use crate::schema::Column;
use crate::{Error, Result};

/// Both ends of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Rows that are decoded at a time.
const BATCH: usize = 4_096;

/// A sealed file whose footer was read and whose columns are those of the ledger.
pub struct LedgerFile {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// The columns that it has, and where in it each is.
    positions: Vec<(Column, usize)>,
}

impl LedgerFile {
    /// Opens a file and checks that it is whole and has the ledger's columns. Columns that this
    /// version does not know are passed over.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Foreign`], [`Error::Damaged`] or [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<LedgerFile> {
        let path = path.as_ref().to_path_buf();
        let mut file = File::open(&path).map_err(Error::io("open", &path))?;
        check_ends(&mut file, &path)?;
        let reader = SerializedFileReader::new(file).map_err(|source| Error::Damaged {
            path: path.clone(),
            source,
        })?;
        let positions = positions(&reader).map_err(|why| Error::Foreign {
            path: path.clone(),
            why,
        })?;
        Ok(LedgerFile {
            path,
            reader,
            positions,
        })
    }

    /// How many rows it holds.
    #[must_use]
    pub fn rows_in_file(&self) -> u64 {
        u64::try_from(self.reader.metadata().file_metadata().num_rows()).unwrap_or(0)
    }

    /// Its rows, in the order in which they were written.
    ///
    /// # Errors
    /// The items are [`Error::Damaged`] where the contents can't be decoded.
    pub fn rows(self) -> Result<impl Iterator<Item = Result<StoredSpan>>> {
        let mut batches = Batches {
            file: self,
            group: 0,
            columns: Vec::new(),
            left: 0,
        };
        let mut batch = Vec::new().into_iter();
        let mut ended = false;
        Ok(std::iter::from_fn(move || {
            while !ended {
                if let Some(row) = batch.next() {
                    return Some(Ok(row));
                }
                match batches.next_batch() {
                    Ok(Some(rows)) => batch = rows.into_iter(),
                    Ok(None) => ended = true,
                    Err(source) => {
                        ended = true;
                        return Some(Err(Error::Damaged {
                            path: batches.file.path.clone(),
                            source,
                        }));
                    }
                }
            }
            None
        }))
    }
}

/// Tells a file that was cut off from one that never was Parquet: the library calls both corrupt.
fn check_ends(file: &mut File, path: &Path) -> Result<()> {
    let failed = |source| Error::io("read", path)(source);
    let bytes = file.metadata().map_err(failed)?.len();
    let truncated = || Error::Truncated {
        path: path.to_path_buf(),
        bytes,
    };
    let mut end = [0; 4];
    match file.read_exact(&mut end) {
        Err(source) if source.kind() == ErrorKind::UnexpectedEof => return Err(truncated()),
        other => other.map_err(failed)?,
    }
    if &end != MAGIC {
        let why = "it is not in the Parquet format".to_owned();
        return Err(Error::Foreign {
            path: path.to_path_buf(),
            why,
        });
    }
    // Begin, length of the footer, end.
    if bytes < 12 {
        return Err(truncated());
    }
    let mut tail = [0; 8];
    file.seek(SeekFrom::End(-8)).map_err(failed)?;
    file.read_exact(&mut tail).map_err(failed)?;
    let [a, b, c, d, magic @ ..] = tail;
    let footer = u64::from(u32::from_le_bytes([a, b, c, d]));
    if &magic != MAGIC || footer > bytes - 12 {
        return Err(truncated());
    }
    Ok(())
}

/// Where each of the ledger's columns is, or what is wrong with it.
fn positions(
    reader: &SerializedFileReader<File>,
) -> std::result::Result<Vec<(Column, usize)>, String> {
    let schema = reader.metadata().file_metadata().schema_descr();
    Column::all()
        .filter_map(|column| {
            let name = column.name(&[]);
            let found = schema
                .columns()
                .iter()
                .enumerate()
                .find(|(_, found)| found.path().parts() == [name.as_str()]);
            match found {
                Some((position, found)) => Some(Ok((column, position, found))),
                None if column.may_be_missing() => None,
                None => Some(Err(format!("it has no column {name}"))),
            }
        })
        .map(|found| {
            let (column, position, found) = found?;
            let name = column.name(&[]);
            if found.physical_type() != column.physical() || found.max_rep_level() > 0 {
                return Err(format!(
                    "its column {name} is not a plain {}",
                    column.physical()
                ));
            }
            Ok((column, position))
        })
        .collect()
}

/// The library takes it for granted that a footer has no negative places.
fn check_place(column: Column, chunk: &ColumnChunkMetaData) -> parquet::errors::Result<()> {
    let starts = [
        chunk.dictionary_page_offset(),
        Some(chunk.data_page_offset()),
    ];
    if starts.into_iter().flatten().any(|start| start < 0) || chunk.compressed_size() < 0 {
        return Err(ParquetError::General(format!(
            "{} begins or ends before the file",
            column.name(&[])
        )));
    }
    Ok(())
}

/// Decodes a file, row group by row group, some thousand rows at a time.
struct Batches {
    file: LedgerFile,
    /// The next row group.
    group: usize,
    /// Readers of the current one, by the file's `positions`.
    columns: Vec<ColumnReader>,
    /// Rows of it that were not decoded yet.
    left: usize,
}

impl Batches {
    fn next_batch(&mut self) -> parquet::errors::Result<Option<Vec<StoredSpan>>> {
        while self.left == 0 {
            if self.group == self.file.reader.num_row_groups() {
                return Ok(None);
            }
            let group = self.file.reader.get_row_group(self.group)?;
            self.group += 1;
            self.left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
            self.columns = self
                .file
                .positions
                .iter()
                .map(|&(column, position)| {
                    check_place(column, group.metadata().column(position))?;
                    group.get_column_reader(position)
                })
                .collect::<parquet::errors::Result<_>>()?;
        }
        let count = self.left.min(BATCH);
        self.left -= count;
        let mut rows = vec![StoredSpan::blank(); count];
        for ((column, _), reader) in self.file.positions.iter().zip(&mut self.columns) {
            decode(*column, reader, &mut rows)?;
        }
        Ok(Some(rows))
    }
}

/// Reads the next values of a column into the rows.
fn decode(
    column: Column,
    reader: &mut ColumnReader,
    rows: &mut [StoredSpan],
) -> parquet::errors::Result<()> {
    match reader {
        ColumnReader::Int64ColumnReader(reader) => {
            let mut values = Vec::with_capacity(rows.len());
            let mut levels = Vec::with_capacity(rows.len());
            let (read, ..) =
                reader.read_records(rows.len(), Some(&mut levels), None, &mut values)?;
            all_of(rows.len(), read)?;
            let mut values = values.into_iter();
            for (number, row) in rows.iter_mut().enumerate() {
                // A column that can't be null has no levels.
                let is_null = levels.get(number) == Some(&0);
                let value = if is_null { None } else { values.next() };
                set(row, column, value)?;
            }
        }
        ColumnReader::DoubleColumnReader(reader) => {
            let mut values = Vec::with_capacity(rows.len());
            let (read, ..) = reader.read_records(rows.len(), None, None, &mut values)?;
            all_of(rows.len(), read.min(values.len()))?;
            rows.iter_mut()
                .zip(values)
                .for_each(|(row, weight)| row.weight = weight);
        }
        ColumnReader::ByteArrayColumnReader(reader) => {
            let mut values: Vec<ByteArray> = Vec::with_capacity(rows.len());
            let mut levels = Vec::with_capacity(rows.len());
            let (read, ..) =
                reader.read_records(rows.len(), Some(&mut levels), None, &mut values)?;
            all_of(rows.len(), read)?;
            let mut values = values.into_iter();
            let mut last: Arc<str> = Arc::from("");
            for (number, row) in rows.iter_mut().enumerate() {
                if levels.get(number) == Some(&0) {
                    continue;
                }
                let value = values.next().ok_or_else(|| missing(column))?;
                let text = value.as_utf8()?;
                if *last != *text {
                    last = Arc::from(text);
                }
                match column {
                    Column::CauseBy(cause) => row.cause_by[cause.index()] = Some(last.clone()),
                    _ => row.span = last.clone(),
                }
            }
        }
        _ => {
            return Err(ParquetError::General(format!(
                "unexpected type of {}",
                column.name(&[])
            )));
        }
    }
    Ok(())
}

fn all_of(expected: usize, read: usize) -> parquet::errors::Result<()> {
    if read == expected {
        return Ok(());
    }
    Err(ParquetError::EOF(format!(
        "{read} values where {expected} were announced"
    )))
}

fn set(row: &mut StoredSpan, column: Column, value: Option<i64>) -> parquet::errors::Result<()> {
    let field = match column {
        Column::Id => {
            row.id = value;
            return Ok(());
        }
        Column::CauseNs(cause) => {
            row.cause_ns[cause.index()] = value;
            return Ok(());
        }
        Column::CauseN(cause) => {
            row.cause_n[cause.index()] = value;
            return Ok(());
        }
        Column::Others => {
            row.others = value;
            return Ok(());
        }
        Column::Start => &mut row.start_ns,
        Column::Pid => &mut row.pid,
        Column::Tid => &mut row.tid,
        Column::Cpu => &mut row.cpu,
        Column::Wall => &mut row.wall_ns,
        Column::Span | Column::Weight | Column::CauseBy(_) | Column::Counter(_) => return Ok(()),
    };
    *field = value.ok_or_else(|| missing(column))?;
    Ok(())
}

fn missing(column: Column) -> ParquetError {
    ParquetError::General(format!("{} is null", column.name(&[])))
}
