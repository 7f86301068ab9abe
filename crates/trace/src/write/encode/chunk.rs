//! A column chunk from pages that are encoded already.

use std::io::Write;

use bytes::Bytes;
use parquet::basic::{CompressionCodec, Encoding};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::file::writer::{SerializedPageWriter, SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;

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
        let rows = u32::try_from(self.rows)?;
        let mut sink = TrackedWrite::new(Vec::new());
        let mut pages = SerializedPageWriter::new(&mut sink);
        let mut uncompressed = 0;
        let mut encodings = vec![self.encoding, Encoding::RLE];
        let mut data_offset = 0;
        let has_dictionary = self.dictionary.is_some();
        if let Some((values, count)) = self.dictionary {
            let written = pages.write_page(compressed(Page::DictionaryPage {
                buf: values.into(),
                num_values: u32::try_from(count)?,
                encoding: Encoding::PLAIN,
                is_sorted: false,
            }))?;
            encodings.push(Encoding::PLAIN);
            uncompressed += written.uncompressed_size;
            data_offset = written.bytes_written;
        }
        let written = pages.write_page(compressed(Page::DataPage {
            buf: self.data.into(),
            num_values: rows,
            encoding: self.encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }))?;
        uncompressed += written.uncompressed_size;
        let bytes = sink.into_inner()?;
        let mut metadata = ColumnChunkMetaData::builder(column)
            .set_compression_codec(CompressionCodec::UNCOMPRESSED)
            .set_encodings(encodings)
            .set_total_compressed_size(i64::try_from(bytes.len())?)
            .set_total_uncompressed_size(i64::try_from(uncompressed)?)
            .set_num_values(i64::from(rows))
            .set_data_page_offset(i64::try_from(data_offset)?)
            .set_dictionary_page_offset(has_dictionary.then_some(0));
        if let Some(statistics) = self.statistics {
            metadata = metadata.set_statistics(statistics);
        }
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: u64::from(rows),
            metadata: metadata.build()?,
            bloom_filter: None,
            column_index: None,
            offset_index: None,
        };
        group.append_column(&Bytes::from(bytes), closed)
    }
}

fn compressed(page: Page) -> CompressedPage {
    let size = page.buffer().len();
    CompressedPage::new(page, size)
}
