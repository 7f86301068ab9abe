//! A file's own checksum: the CRC32 of all its bytes, in its footer.
//!
//! Parquet's pages have checksums of their own, but no reader that we know checks them by itself,
//! and their headers and the footer have none. So each file says what the CRC32 of the whole of it
//! is, with eight zeros (as characters) in the place of the checksum. It is in the file, and not
//! beside it, so that one rename makes both: no crash leaves a file whose checksum is not its own.

use std::fs::File;
use std::io::{self, Error, ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crc32fast::Hasher;
use parquet::file::metadata::KeyValue;

/// The key of the checksum in the footer. In Thrift's compact protocol the value follows it: a
/// byte for the field, one for the length, eight hexadecimal digits.
const KEY: &str = "tailscope.crc32";
/// What stands for the checksum while it is computed.
const ROOM: &[u8; 8] = b"00000000";
/// Who made the file, as its footer has it. A second sign that the file has a checksum: one that
/// lost its key to damage is not taken for an older one without.
pub(super) const CREATED_BY: &str =
    concat!("tailscope ", env!("CARGO_PKG_VERSION"), " with checksum");
/// The footer's length and Parquet's magic number, which end a file.
const END: usize = 8;

/// The footer's entry, without the checksum.
pub(super) fn to_be_filled_in() -> KeyValue {
    KeyValue::new(KEY.to_owned(), String::from_utf8_lossy(ROOM).into_owned())
}

/// A file that is written from its begin to its end, and the checksum of what was written.
pub(super) struct Sink {
    file: Arc<File>,
    hasher: Hasher,
    bytes: u64,
}

impl Sink {
    pub(super) fn new(file: Arc<File>) -> Sink {
        Sink {
            file,
            hasher: Hasher::new(),
            bytes: 0,
        }
    }

    /// Writes the checksum into the footer, which is complete.
    pub(super) fn fill_in(&mut self) -> io::Result<()> {
        let mut end = [0; END];
        let footer_end = self.bytes.saturating_sub(END as u64);
        self.file.read_exact_at(&mut end, footer_end)?;
        let [a, b, c, d, ..] = end;
        let mut footer = vec![0; u32::from_le_bytes([a, b, c, d]) as usize];
        let footer_begin = footer_end.saturating_sub(footer.len() as u64);
        self.file.read_exact_at(&mut footer, footer_begin)?;
        let room = room(&footer).ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidData,
                "the footer has no room for a checksum",
            )
        })?;
        let checksum = format!("{:08x}", self.hasher.clone().finalize());
        self.file
            .write_all_at(checksum.as_bytes(), footer_begin + room as u64)
    }
}

/// Where the footer's checksum begins.
fn room(footer: &[u8]) -> Option<usize> {
    let key = footer
        .windows(KEY.len())
        .position(|bytes| bytes == KEY.as_bytes())?;
    // After the key: the byte of the field and that of the length.
    let begin = key + KEY.len() + 2;
    (footer.get(begin..begin + ROOM.len())? == ROOM).then_some(begin)
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
