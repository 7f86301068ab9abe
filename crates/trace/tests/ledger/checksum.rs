//! What a file says of itself: the CRC32 of its pages and of the whole of it.

use std::path::Path;

use parquet::file::reader::FileReader;
use tailscope_trace::Summary;

use crate::sample;

const KEY: &[u8] = b"tailscope.crc32";

/// A ledger of a few thousand rows in one file, and that file.
fn one_file() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = sample::create(folder.path(), sample::every(100_000));
    // More than a row group.
    sample::push_rows(&mut writer, 0..70_000);
    writer.finish(Summary::default()).unwrap();
    let files = sample::sealed(folder.path());
    assert_eq!(files.len(), 1);
    (folder, files[0].clone())
}

/// The checksum that a file says it has, and that which it has.
pub fn told_and_found(file: &Path) -> (String, String) {
    let mut bytes = std::fs::read(file).unwrap();
    let key = bytes
        .windows(KEY.len())
        .position(|found| found == KEY)
        .unwrap();
    let room = key + KEY.len() + 2..key + KEY.len() + 10;
    let told = String::from_utf8(bytes[room.clone()].to_vec()).unwrap();
    bytes[room].copy_from_slice(b"00000000");
    (told, format!("{:08x}", crc32fast::hash(&bytes)))
}

#[test]
fn a_file_has_the_checksum_of_all_its_bytes_in_its_footer() {
    let (_folder, file) = one_file();
    let (told, found) = told_and_found(&file);
    assert_eq!(told, found);

    // As others see it.
    let reader = sample::open(&file);
    let metadata = reader.metadata().file_metadata();
    let entries = metadata.key_value_metadata().unwrap();
    assert_eq!(entries[0].key, "tailscope.crc32");
    assert_eq!(entries[0].value.as_deref(), Some(told.as_str()));
    assert!(metadata.created_by().unwrap().ends_with(" with checksum"));
}

#[test]
fn a_changed_page_is_not_read() {
    let (folder, file) = one_file();
    assert_eq!(sample::numbers(folder.path()).len(), 70_000);
    let reader = sample::open(&file);
    let column = reader.metadata().row_group(0).column(0).clone();
    let mut bytes = std::fs::read(&file).unwrap();
    let (begin, length) = column.byte_range();
    bytes[(begin + length) as usize - 1] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let reader = sample::open(&file);
    let mut pages = (reader.get_row_group(0).unwrap())
        .get_column_page_reader(0)
        .unwrap();
    let error = pages
        .find_map(Result::err)
        .expect("the CRC of the page is not what its header says");
    assert!(error.to_string().contains("CRC"), "{error}");
}
