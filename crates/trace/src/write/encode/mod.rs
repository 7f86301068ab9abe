//! From columns in memory to a row group in a file.
//!
//! Goal: every request of a busy server can be written, so a row must cost little CPU; bytes come
//! second (the bar is 24 a row). Measured by `examples/throughput.rs`, ns of CPU and bytes a row:
//!
//! | how | ns | bytes |
//! | --- | --- | --- |
//! | the Parquet library's column writers: dictionaries, delta for times, zstd level 1 | 480 to 670 | 7.5 |
//! | pages made here, not compressed | 75 to 130 | 8.7 |
//! | the same with zstd level 1 (at its own speed on such a file) | 55 more | 7.5 |
//!
//! Rejected: the library's column writers, because they hash (dictionary) or subtract (delta) each
//! value of 28 columns that are nearly all zero. They still frame the file: row groups, page
//! headers, footer. Rejected: zstd, because packed differences have nothing left to compress and
//! the rest is a third of the file.
//!
//! Chosen, by the kind of the values:
//! * `start_ns`, `wall_ns`, `id` and causes that strike often: DELTA_BINARY_PACKED, about 2 bytes;
//! * `span`, `pid`, `tid`, `cpu`, `weight` and counts: a dictionary, bit-packed, less than 1;
//! * causes that strike rarely: a dictionary of the strikes and runs of zero between them, whose
//!   cost goes with the strikes and not with the rows;
//! * who is to blame: levels (runs) and a dictionary of the few names;
//! * causes that are not measured: one run of nulls.

mod chunk;
mod delta;
mod dictionary;
mod hybrid;
mod page;
mod pages;

use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, TypePtr};

use self::chunk::Chunk;
use self::dictionary::Dictionary;
use super::checksum::{self, Sink};
use super::names::Names;
use crate::columns::{Columns, Counted, Strikes, TableColumn};
use crate::schema::Column;
use crate::{Cause, CauseSet, SpanName};

/// A cause that struck more than one row in so many is written for every row: a strike in a list
/// takes about 12 bytes, a value among others 1.5.
const SPARSE: usize = 8;

/// Without the offset index: every chunk is one page, which the footer locates already.
pub(crate) fn properties() -> WriterProperties {
    WriterProperties::builder()
        .set_offset_index_disabled(true)
        .set_created_by(checksum::CREATED_BY.to_owned())
        .set_key_value_metadata(Some(vec![checksum::to_be_filled_in()]))
        .build()
}

/// Encodes row groups; keeps its buffers from one to the next.
pub(crate) struct Encoder {
    schema: SchemaDescriptor,
    measured: CauseSet,
    dictionary: Dictionary,
    numbers: Vec<u32>,
    spread: Vec<i64>,
}

impl Encoder {
    pub(crate) fn new(schema: TypePtr, measured: CauseSet) -> Encoder {
        Encoder {
            schema: SchemaDescriptor::new(schema),
            measured,
            dictionary: Dictionary::new(),
            numbers: Vec::new(),
            spread: Vec::new(),
        }
    }

    /// Writes the columns as the file's next row group.
    pub(crate) fn row_group(
        &mut self,
        writer: &mut SerializedFileWriter<Sink>,
        columns: &Columns,
        names: &Names,
    ) -> Result<()> {
        let mut group = writer.next_row_group()?;
        let all = Column::all_with(columns.counters.len(), &columns.links);
        for (position, column) in all.enumerate() {
            let description = self.schema.column(position);
            self.chunk(column, columns, names)
                .append(&mut group, description)?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes columns of plain numbers as the file's next row group.
    pub(crate) fn numbers(
        &mut self,
        writer: &mut SerializedFileWriter<Sink>,
        columns: &[Vec<i64>],
    ) -> Result<()> {
        let mut group = writer.next_row_group()?;
        for (position, values) in columns.iter().enumerate() {
            let description = self.schema.column(position);
            pages::delta_with_range(values).append(&mut group, description)?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the columns of a table beside the rows as the file's next row group.
    pub(crate) fn table(
        &mut self,
        writer: &mut SerializedFileWriter<Sink>,
        columns: &[TableColumn],
        names: &Names,
    ) -> Result<()> {
        let mut group = writer.next_row_group()?;
        for (position, column) in columns.iter().enumerate() {
            let description = self.schema.column(position);
            let chunk = match column {
                TableColumn::Numbers(values) => pages::delta_with_range(values),
                TableColumn::Reals(values) => self.weight(values),
                TableColumn::Texts(values) => self.texts(values, names),
            };
            chunk.append(&mut group, description)?;
        }
        group.close()?;
        Ok(())
    }

    fn chunk(&mut self, column: Column, columns: &Columns, names: &Names) -> Chunk {
        match column {
            Column::Start => pages::delta_with_range(&columns.start_ns),
            Column::Wall => pages::delta_with_range(&columns.wall_ns),
            Column::Pid => self.identity(&columns.pid),
            Column::Tid => self.identity(&columns.tid),
            Column::Cpu => self.identity(&columns.cpu),
            Column::Weight => self.weight(&columns.weight),
            Column::Span => self.texts(&columns.span, names),
            Column::Id => pages::optional(
                &columns.id_rows,
                &columns.id,
                columns.len(),
                &mut self.numbers,
            ),
            Column::Others => pages::optional(
                &columns.others_rows,
                &columns.others,
                columns.len(),
                &mut self.numbers,
            ),
            Column::CauseNs(cause) | Column::CauseN(cause) if !self.measured.contains(cause) => {
                pages::optional(&[], &[], columns.len(), &mut self.numbers)
            }
            Column::CauseNs(cause) => self.cause_ns(cause, columns),
            Column::CauseN(cause) => self.cause_n(cause, columns),
            Column::CauseBy(cause) => self.cause_by(cause, columns, names),
            Column::Counter(place) => {
                let Counted { rows, values } = &columns.counters[place];
                pages::optional(rows, values, columns.len(), &mut self.numbers)
            }
            Column::Link(link) => {
                let (rows, values) = columns
                    .linked(link)
                    .map_or((&[][..], &[][..]), |of| (&of.rows[..], &of.values[..]));
                pages::optional(rows, values, columns.len(), &mut self.numbers)
            }
        }
    }

    /// `pid`, `tid`, `cpu`: few different ones, or (in a machine full of threads) many.
    fn identity(&mut self, values: &[i32]) -> Chunk {
        let wide = values.iter().map(|&value| i64::from(value));
        // As bits: the dictionary stores what PLAIN would.
        if self
            .dictionary
            .number_all(wide.clone().map(|value| value as u64), &mut self.numbers)
        {
            return pages::numbered(&self.dictionary, &self.numbers);
        }
        self.spread.clear();
        self.spread.extend(wide);
        pages::delta(&self.spread)
    }

    fn weight(&mut self, values: &[f64]) -> Chunk {
        let bits = values.iter().map(|weight| weight.to_bits());
        if self.dictionary.number_all(bits, &mut self.numbers) {
            return pages::numbered(&self.dictionary, &self.numbers);
        }
        pages::plain(values)
    }

    fn texts(&mut self, values: &[u32], names: &Names) -> Chunk {
        if self.dictionary.number_all(
            values.iter().map(|&name| u64::from(name)),
            &mut self.numbers,
        ) {
            return pages::numbered_texts(&self.dictionary, &self.numbers, |name| {
                names.text(SpanName(name as u32))
            });
        }
        pages::plain_texts(
            values.iter().map(|&name| names.text(SpanName(name))),
            values.len(),
        )
    }

    fn cause_ns(&mut self, cause: Cause, columns: &Columns) -> Chunk {
        let strikes = &columns.strikes[cause.index()];
        if is_sparse(strikes, columns.len()) {
            return pages::strikes_ns(strikes, columns.len());
        }
        self.spread(strikes, columns.len(), |number| strikes.ns[number]);
        pages::delta(&self.spread)
    }

    fn cause_n(&mut self, cause: Cause, columns: &Columns) -> Chunk {
        let strikes = &columns.strikes[cause.index()];
        if is_sparse(strikes, columns.len())
            && let Some(chunk) = pages::strikes_n(strikes, columns.len(), &mut self.dictionary)
        {
            return chunk;
        }
        self.spread(strikes, columns.len(), |number| {
            i64::from(strikes.n[number])
        });
        let values = self.spread.iter().map(|&n| n as u64);
        if self.dictionary.number_all(values, &mut self.numbers) {
            return pages::numbered(&self.dictionary, &self.numbers);
        }
        pages::delta(&self.spread)
    }

    fn cause_by(&mut self, cause: Cause, columns: &Columns, names: &Names) -> Chunk {
        let strikes = &columns.strikes[cause.index()];
        let texts = self.texts(&strikes.by, names);
        pages::optional_texts(&strikes.by_rows, texts, columns.len(), &mut self.numbers)
    }

    /// Lays the strikes' values out row by row, 0 where the cause did not strike.
    fn spread(&mut self, strikes: &Strikes, rows: usize, value: impl Fn(usize) -> i64) {
        self.spread.clear();
        self.spread.resize(rows, 0);
        for (number, &row) in strikes.rows.iter().enumerate() {
            self.spread[row as usize] = value(number);
        }
    }
}

fn is_sparse(strikes: &Strikes, rows: usize) -> bool {
    strikes.rows.len() * SPARSE <= rows
}
