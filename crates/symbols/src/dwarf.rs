//! What compilers describe of a program in its file (`-g`, DWARF), read into memory.

use std::borrow::Cow;
use std::fs::File;
use std::sync::Arc;

use gimli::{Dwarf, EndianArcSlice, LittleEndian, Reader as _, Section, SectionId};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use object::read::elf::ElfFile64;
use object::read::{CompressedData, CompressionFormat};
use object::{Endianness, Object, ObjectSection, ReadCache};

/// Files that have more than this of it are left alone: it is read into memory.
pub(crate) const MOST_BYTES: u64 = 256 << 20;

/// A larger file is not looked into for it.
const MOST_IN_FILE: u64 = 1 << 30;

pub(crate) type Reader = EndianArcSlice<LittleEndian>;

/// The descriptions in a file; `None`: it has none, or more than `most` bytes of them.
pub(crate) fn read(file: &File, most: u64) -> Option<Dwarf<Reader>> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    // In the file first: to ask how long a section is once inflated reads it.
    let in_file = elf.sections().map(|section| section.size());
    if in_file.fold(0, u64::saturating_add) > MOST_IN_FILE
        || file.metadata().ok()?.len() > MOST_IN_FILE
    {
        return None;
    }
    let of_source = elf
        .sections()
        .filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug_")))
        .filter_map(|section| section.compressed_data().ok());
    let bytes = of_source.map(|section| section.uncompressed_size);
    if bytes.fold(0, u64::saturating_add) > most.min(MOST_BYTES) {
        return None;
    }
    of_sections(|name| {
        let section = elf.section_by_name(name);
        let data = section.and_then(|section| section.compressed_data().ok());
        Arc::from(&*data.and_then(inflated).unwrap_or_default())
    })
}

/// Bytes of descriptions.
pub(crate) fn bytes(dwarf: &Dwarf<Reader>) -> u64 {
    let sections = [
        dwarf.debug_info.reader().len(),
        dwarf.debug_str.reader().len(),
        dwarf.debug_abbrev.reader().len(),
        dwarf.debug_line.reader().len(),
    ];
    sections.iter().map(|bytes| *bytes as u64).sum()
}

/// The same of sections by their names.
pub(crate) fn of_sections(section: impl Fn(&str) -> Arc<[u8]>) -> Option<Dwarf<Reader>> {
    let load = |id: SectionId| Ok::<_, gimli::Error>(Reader::new(section(id.name()), LittleEndian));
    Dwarf::load(load).ok()
}

/// A section's bytes, as distributions and linkers compress them. Other formats count as not there.
fn inflated(section: CompressedData<'_>) -> Option<Cow<'_, [u8]>> {
    match section.format {
        CompressionFormat::None => Some(section.data.into()),
        CompressionFormat::Zlib => {
            let size = section.uncompressed_size as usize;
            let bytes = decompress_to_vec_zlib_with_limit(section.data, size).ok()?;
            (bytes.len() == size).then_some(bytes.into())
        }
        CompressionFormat::Zstandard => {
            let size = section.uncompressed_size as usize;
            let bytes = zstd::bulk::decompress(section.data, size).ok()?;
            (bytes.len() == size).then_some(bytes.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compressed_section_is_inflated_and_no_further_than_it_says() {
        // What zlib and zstd make of "debug", stored.
        let zlib = b"\x78\x01\x01\x05\x00\xfa\xffdebug\x06\x04\x02\x08";
        let zstd = b"\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00debug";
        for (format, data) in [
            (CompressionFormat::Zlib, &zlib[..]),
            (CompressionFormat::Zstandard, zstd),
        ] {
            let section = |uncompressed_size| CompressedData {
                format,
                data,
                uncompressed_size,
            };
            assert_eq!(inflated(section(5)).as_deref(), Some(&b"debug"[..]));
            assert_eq!((inflated(section(4)), inflated(section(6))), (None, None));
        }
    }
}
