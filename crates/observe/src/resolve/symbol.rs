//! Global variables and functions in a program file.

use std::fs::File;
use std::io;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolFlags, elf};

/// A variable or function, by its address in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) address: u64,
    /// Bytes; 0: the file does not say.
    pub(super) size: u64,
    /// Each thread has one of its own: no address in the file leads to it.
    pub(super) of_threads: bool,
}

/// A piece of the file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Loaded {
    pub(super) address: u64,
    pub(super) offset: u64,
}

/// What a file says of them.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    pub(super) all: Vec<Symbol>,
    pub(super) loaded: Vec<Loaded>,
    /// Its own table of symbols was taken out.
    pub(super) stripped: bool,
    /// It tells lines of the source.
    pub(super) has_lines: bool,
}

/// The variables in the file's tables of symbols.
pub(super) fn variables(file: &File) -> io::Result<Symbols> {
    read(file, &[elf::STT_OBJECT, elf::STT_TLS])
}

/// The functions in them.
pub(super) fn functions(file: &File) -> io::Result<Symbols> {
    read(file, &[elf::STT_FUNC])
}

fn read(file: &File, kinds: &[elf::SymbolType]) -> io::Result<Symbols> {
    let cache = ReadCache::new(file);
    let parsed = ElfFile64::<Endianness, _>::parse(&cache)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("no 64-bit ELF: {e}")))?;
    let symbols = parsed.symbols().chain(parsed.dynamic_symbols());
    let all = symbols
        .filter(|symbol| !symbol.is_undefined())
        .filter_map(|symbol| {
            let SymbolFlags::Elf { st_info, .. } = symbol.flags() else {
                return None;
            };
            let kind = st_info.st_type();
            kinds.contains(&kind).then_some(())?;
            let of_threads = kind == elf::STT_TLS;
            // In some tables a name carries its version: environ@@GLIBC_2.2.5.
            let name = symbol.name().ok()?.split('@').next()?.to_owned();
            Some(Symbol {
                name,
                address: symbol.address(),
                size: symbol.size(),
                of_threads,
            })
        })
        .collect();
    Ok(Symbols {
        all,
        loaded: parsed
            .segments()
            .map(|segment| Loaded {
                address: segment.address(),
                offset: segment.file_range().0,
            })
            .collect(),
        stripped: parsed.symbols().next().is_none(),
        has_lines: parsed.section_by_name(".debug_line").is_some(),
    })
}
