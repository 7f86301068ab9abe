use std::io::Write;

use proptest::prelude::*;

use super::*;

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a temporary file");
    file.write_all(bytes).expect("written");
    file
}

/// A header, and one section header that says what is given.
fn with_section(kind: u32, offset: u64, size: u64) -> Vec<u8> {
    let mut bytes = vec![0; HEADER];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[40..48].copy_from_slice(&(HEADER as u64).to_le_bytes());
    bytes[58..60].copy_from_slice(&(SECTION as u16).to_le_bytes());
    bytes[60..62].copy_from_slice(&1u16.to_le_bytes());
    bytes[62..64].copy_from_slice(&9u16.to_le_bytes());
    let mut section = vec![0; SECTION];
    section[4..8].copy_from_slice(&kind.to_le_bytes());
    section[24..32].copy_from_slice(&offset.to_le_bytes());
    section[32..40].copy_from_slice(&size.to_le_bytes());
    bytes.extend(section);
    bytes
}

#[test]
fn our_own_functions_have_names_and_places() {
    let file = File::open("/proc/self/exe").expect("our own file");
    let elf = Elf::of(&file).expect("it is one");
    let mut main = None;
    elf.symbols(&[STT_FUNC], |symbol| {
        if symbol.name == "main" {
            main = Some(symbol.address);
        }
    })
    .expect("read");
    let offset = elf.offset_of(main.expect("a program has main"));
    assert!(offset.is_some_and(|at| at > 0 && at < file.metadata().expect("ours").len()));
    assert_eq!(elf.offset_of(u64::MAX), None);
    assert!(elf.section(".text").is_some() && elf.section(".none").is_none());
}

#[test]
fn a_sparse_files_tables_take_no_memory() {
    let file = file_of(&with_section(SHT_SYMTAB, 4096, 1 << 40));
    file.set_len(2 << 40).expect("sparse");
    let elf = Elf::of(&file).expect("its headers are right");
    let section = elf.sections()[0];
    assert!(elf.data(&section, 1 << 20).is_err());
    let error = elf.symbols(&[0], |_| {}).expect_err("too large");
    assert!(error.to_string().contains("GB"), "{error}");
}

#[test]
fn what_lies_beyond_the_end_is_an_error() {
    let file = file_of(&with_section(SHT_SYMTAB, u64::MAX - 8, 4096));
    let elf = Elf::of(&file).expect("its headers are right");
    assert!(elf.data(&elf.sections()[0], 1 << 20).is_err());
    assert!(elf.symbols(&[0], |_| {}).is_err());
}

proptest! {
    #[test]
    fn foreign_files_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if bytes.len() > 64 {
            bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
            bytes[54..56].copy_from_slice(&56u16.to_le_bytes());
            bytes[58..60].copy_from_slice(&64u16.to_le_bytes());
        }
        let file = file_of(&bytes);
        if let Ok(elf) = Elf::of(&file) {
            let _ = elf.symbols(&[0, 1, 2], |_| {});
            let _ = elf.section(".text");
        }
    }

    #[test]
    fn foreign_sections_never_panic(kind in 0u32..12, offset: u64, size: u64, tail: Vec<u8>) {
        let file = file_of(&[with_section(kind, offset, size), tail].concat());
        if let Ok(elf) = Elf::of(&file) {
            let _ = elf.symbols(&[0, 1, 2], |_| {});
            let _ = elf.data(&elf.sections()[0], 1 << 20);
        }
    }
}
