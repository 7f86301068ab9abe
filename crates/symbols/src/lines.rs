//! Lines of the source, as compilers put them into a program's file (`-g`, DWARF).

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock};

use addr2line::Context;
use gimli::{Dwarf, EndianArcSlice, LittleEndian, SectionId};
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use object::read::elf::ElfFile64;
use object::read::{CompressedData, CompressionFormat};
use object::{Endianness, Object, ObjectSection, ReadCache};

/// Files that have more than this of it are left alone: it is read into memory.
const MOST_BYTES: u64 = 256 << 20;

/// A larger file is not looked into for it.
const MOST_IN_FILE: u64 = 1 << 30;

/// No compiler puts more functions into one another.
const MOST_INLINED: usize = 64;

type Reader = EndianArcSlice<LittleEndian>;

/// Of one file. It is read when the first line is asked for, so when the observation is over.
pub struct Lines {
    file: File,
    read: OnceLock<Option<Mutex<Context<Reader>>>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Of a program, or of its separate debug file. Nothing is read yet.
    #[must_use]
    pub fn of(file: File) -> Self {
        Self {
            file,
            read: OnceLock::new(),
        }
    }

    /// `FILE:LINE` of the instruction at an address, in the file's own numbering; `None`: the file
    /// does not tell.
    pub fn find(&self, address: u64) -> Option<String> {
        let read = self.read.get_or_init(|| read(&self.file).map(Mutex::new));
        let context = read.as_ref()?.lock().ok()?;
        // The library looks between it and the next one, which the last of all has not.
        address.checked_add(1)?;
        let found = context.find_location(address).ok()??;
        let file = found.file?.rsplit('/').next()?;
        Some(format!("{file}:{}", found.line?))
    }

    /// The functions at an address, the innermost inlined one first, as the compiler's symbols name
    /// them; empty: the file does not tell.
    pub fn functions(&self, address: u64) -> Vec<String> {
        let read = self.read.get_or_init(|| read(&self.file).map(Mutex::new));
        let Some(context) = read.as_ref().and_then(|context| context.lock().ok()) else {
            return Vec::new();
        };
        if address == u64::MAX {
            return Vec::new();
        }
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while found.len() < MOST_INLINED
            && let Ok(Some(frame)) = frames.next()
        {
            let name = frame.function.as_ref().map(|f| f.raw_name());
            match name {
                Some(Ok(name)) => found.push(name.into_owned()),
                _ => return Vec::new(), // a chain with a gap is no chain
            }
        }
        found
    }
}

fn read(file: &File) -> Option<Context<Reader>> {
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
    if bytes.fold(0, u64::saturating_add) > MOST_BYTES {
        return None;
    }
    context(|name| {
        let section = elf.section_by_name(name);
        let data = section.and_then(|section| section.compressed_data().ok());
        Arc::from(&*data.and_then(inflated).unwrap_or_default())
    })
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

fn context(section: impl Fn(&str) -> Arc<[u8]>) -> Option<Context<Reader>> {
    let load = |id: SectionId| Ok::<_, gimli::Error>(Reader::new(section(id.name()), LittleEndian));
    Context::from_dwarf(Dwarf::load(load).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_that_is_no_program_has_no_lines() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(b"#!/bin/sh\n").expect("written");
        assert_eq!(Lines::of(file).find(0x1000), None);
    }

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

    proptest! {
        #[test]
        fn foreign_sections_never_panic(info: Vec<u8>, line: Vec<u8>, other: Vec<u8>, at: u64) {
            let found = context(|name| match name {
                ".debug_info" => Arc::from(&*info),
                ".debug_line" => Arc::from(&*line),
                _ => Arc::from(&*other),
            });
            if let Some(context) = found
                && at < u64::MAX
            {
                let _ = context.find_location(at);
            }
        }
    }
}
