//! A column chunk from pages that are encoded already.

use std::io::Write;

use bytes::Bytes;
use parquet::basic::{CompressionCodec, Encoding};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::SerializedRowGroupWriter;
use parquet::schema::types::ColumnDescPtr;

use super::page::{self, Kind};

/// A column chunk of one data page, and a dictionary page before it if it has one.
pub(super) struct Chunk {
    /// Values as PLAIN has them, and how many.
    pub(super) dictionary: Option<(Vec<u8>, usize)>,
    /// Definition levels (where the column can be null) and values.
    pub(super) data: Vec<u8>,
    /// Of the values in `data`.
    pub(super) encoding: Encoding,
    pub(super) rows: usize,
    pub(super) statistics: Option<Statistics>,
}

impl Chunk {
    /// Appends the chunk as the row group's next column, which `column` describes.
    pub(super) fn append<W: Write + Send>(
        self,
        group: &mut SerializedRowGroupWriter<'_, W>,
        column: ColumnDescPtr,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        let mut encodings = vec![self.encoding, Encoding::RLE];
        let has_dictionary = self.dictionary.is_some();
        if let Some((values, count)) = self.dictionary {
            page::put(&mut bytes, Kind::Dictionary, count, &values)?;
            encodings.push(Encoding::PLAIN);
        }
        let data_offset = bytes.len();
        page::put(&mut bytes, Kind::Data(self.encoding), self.rows, &self.data)?;
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_compression_codec(CompressionCodec::UNCOMPRESSED)
            .set_encodings(encodings)
            .set_total_compressed_size(i64::try_from(bytes.len())?)
            .set_total_uncompressed_size(i64::try_from(bytes.len())?)
            .set_num_values(i64::try_from(self.rows)?)
            .set_data_page_offset(i64::try_from(data_offset)?)
            .set_dictionary_page_offset(has_dictionary.then_some(0));
        if let Some(statistics) = self.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(bytes), closed)
    }
}
