//! Tables beside the rows: numbers and texts in columns that the caller names, in a folder of the
//! ledger that readers of rows pass over.
//!
//! A file is sealed like one of rows: written under another name, synced, renamed. Its name ends in
//! `.pq`, because tools that look for rows read every `.parquet` file below a ledger.

use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{Type, TypePtr};
use tailscope_output::Folder;

use super::Totals;
use super::encode::Encoder;
use super::names::Names;
use super::series::FileSeries;
use crate::columns::TableColumn;
use crate::{CauseSet, Error, Result};

/// Rows that are encoded at a time.
const GROUP_ROWS: usize = 65_536;
/// Rows of a file: what a crash loses at most, beside those not encoded yet.
const FILE_ROWS: u64 = 1 << 20;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// INT64.
    Number,
    /// DOUBLE.
    Real,
    /// A string.
    Text,
}

/// A value of a row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'v> {
    /// Of a [`Kind::Number`].
    Number(i64),
    /// Of a [`Kind::Real`].
    Real(f64),
    /// Of a [`Kind::Text`].
    Text(&'v str),
}

/// Writes one table.
pub struct TableWriter {
    files: FileSeries,
    encoder: Encoder,
    names: Names,
    columns: Vec<TableColumn>,
    /// Rows that are not encoded yet.
    waiting: usize,
}

impl TableWriter {
    pub(super) fn create(
        held: &Arc<Folder>,
        folder: PathBuf,
        name: &'static str,
        columns: &[(&str, Kind)],
    ) -> Result<Self> {
        let schema = schema(name, columns).map_err(|source| Error::Encode {
            path: folder.join(name),
            source,
        })?;
        let empty = |(_, kind): &(&str, Kind)| match kind {
            Kind::Number => TableColumn::Numbers(Vec::new()),
            Kind::Real => TableColumn::Reals(Vec::new()),
            Kind::Text => TableColumn::Texts(Vec::new()),
        };
        Ok(Self {
            encoder: Encoder::new(Arc::clone(&schema), CauseSet::default()),
            files: FileSeries::new(Arc::clone(held), folder, (name, "pq"), schema, FILE_ROWS),
            names: Names::default(),
            columns: columns.iter().map(empty).collect(),
            waiting: 0,
        })
    }

    /// The same with all rows in one file, so that it can be [edited](super::TableEditor): a crash loses all
    /// of them.
    #[must_use]
    pub fn of_one_file(mut self) -> Self {
        self.files = self.files.of_one_file();
        self
    }

    /// Adds a row, which has a value for each column and of its kind.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Io`] if rows can't be written: those of the file are lost.
    pub fn push(&mut self, row: &[Value<'_>]) -> Result<()> {
        debug_assert_eq!(row.len(), self.columns.len());
        for (column, value) in self.columns.iter_mut().zip(row) {
            match (column, *value) {
                (TableColumn::Numbers(values), Value::Number(value)) => values.push(value),
                (TableColumn::Reals(values), Value::Real(value)) => values.push(value),
                (TableColumn::Texts(values), Value::Text(text)) => {
                    values.push(self.names.intern(text).index());
                }
                _ => unreachable!("the caller named the column's kind"),
            }
        }
        self.waiting += 1;
        if self.waiting >= GROUP_ROWS {
            self.encode()?;
        }
        Ok(())
    }

    fn encode(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.waiting) as u64;
        let (encoder, columns, names) = (&mut self.encoder, &self.columns, &self.names);
        let added = self
            .files
            .add(rows, |file| file.encode_table(encoder, columns, names));
        self.columns.iter_mut().for_each(TableColumn::clear);
        added
    }

    /// Writes what is left and seals it.
    ///
    /// # Errors
    /// As [`push`](TableWriter::push).
    pub fn finish(mut self) -> Result<Totals> {
        if self.waiting > 0 {
            self.encode()?;
        }
        self.files.finish()
    }
}

fn schema(name: &str, columns: &[(&str, Kind)]) -> parquet::errors::Result<TypePtr> {
    let fields = columns
        .iter()
        .map(|(name, kind)| {
            let physical = match kind {
                Kind::Number => Physical::INT64,
                Kind::Real => Physical::DOUBLE,
                Kind::Text => Physical::BYTE_ARRAY,
            };
            let builder =
                Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
            let builder = match kind {
                Kind::Text => builder
                    .with_logical_type(Some(LogicalType::String))
                    .with_converted_type(ConvertedType::UTF8),
                Kind::Number | Kind::Real => builder,
            };
            builder.build().map(Arc::new)
        })
        .collect::<parquet::errors::Result<Vec<_>>>()?;
    Type::group_type_builder(name)
        .with_fields(fields)
        .build()
        .map(Arc::new)
}
