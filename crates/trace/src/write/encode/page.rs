//! A page with its header, which holds the CRC32 of the page.
//!
//! The Parquet crate checks such CRCs and does not write them, so the headers are made here: a
//! `PageHeader` of the format's Thrift definition, in Thrift's compact protocol. There, a field is
//! one byte (the distance to the field before, and its type) and its value; numbers are zigzag
//! varints; a structure ends with a zero.

use parquet::basic::Encoding;
use parquet::errors::{ParquetError, Result};

use super::hybrid::put_varint;

/// What a page holds.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Values of rows.
    Data(Encoding),
    /// The values that a data page's numbers stand for.
    Dictionary,
}

/// Thrift's types, as far as they occur.
const I32: u8 = 5;
const STRUCT: u8 = 12;
const FALSE: u8 = 2;
const STOP: u8 = 0;

/// Appends a page of so many values.
pub(super) fn put(out: &mut Vec<u8>, kind: Kind, values: usize, page: &[u8]) -> Result<()> {
    let size = i32::try_from(page.len())?;
    let values = i32::try_from(values)?;
    // The format has it as a signed number.
    let crc = crc32fast::hash(page) as i32;
    put_i32(out, 1, if matches!(kind, Kind::Data(_)) { 0 } else { 2 });
    put_i32(out, 1, size);
    put_i32(out, 1, size);
    put_i32(out, 1, crc);
    match kind {
        Kind::Data(encoding) => {
            // Field 5, after field 4.
            out.push(1 << 4 | STRUCT);
            put_i32(out, 1, values);
            put_i32(out, 1, number(encoding)?);
            // How levels are encoded, of definition and of repetition.
            put_i32(out, 1, number(Encoding::RLE)?);
            put_i32(out, 1, number(Encoding::RLE)?);
        }
        Kind::Dictionary => {
            // Field 7, after field 4.
            out.push(3 << 4 | STRUCT);
            put_i32(out, 1, values);
            put_i32(out, 1, number(Encoding::PLAIN)?);
            // The values are not sorted.
            out.push(1 << 4 | FALSE);
        }
    }
    out.extend_from_slice(&[STOP, STOP]);
    out.extend_from_slice(page);
    Ok(())
}

fn put_i32(out: &mut Vec<u8>, distance: u8, value: i32) {
    out.push(distance << 4 | I32);
    put_varint(out, u64::from((value << 1 ^ value >> 31) as u32));
}

/// An encoding's number in the format.
fn number(encoding: Encoding) -> Result<i32> {
    match encoding {
        Encoding::PLAIN => Ok(0),
        Encoding::RLE => Ok(3),
        Encoding::DELTA_BINARY_PACKED => Ok(5),
        Encoding::RLE_DICTIONARY => Ok(8),
        other => Err(ParquetError::NYI(format!("no page is written as {other}"))),
    }
}
