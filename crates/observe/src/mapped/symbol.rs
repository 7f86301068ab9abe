//! Global variables and functions in a program file.

use std::fs::File;
use std::io;

use tailscope_signals::elf::{Elf, STT_FUNC, STT_OBJECT, STT_TLS, Segment};

use super::maps::{Mapped, PAGE};

/// Memory that the symbols of one file may take. A file can claim any number of them.
const MOST_BYTES: usize = 256 << 20;

/// A variable or function, by its address in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) address: u64,
    /// Bytes; 0: the file does not say.
    pub(crate) size: u64,
    /// Each thread has one of its own: no address in the file leads to it.
    pub(crate) of_threads: bool,
}

/// A piece of the file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Loaded {
    pub(crate) address: u64,
    pub(crate) offset: u64,
}

/// What a file says of them.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    pub(crate) all: Vec<Symbol>,
    pub(crate) loaded: Vec<Loaded>,
    /// Its own table of symbols was taken out.
    pub(crate) stripped: bool,
    /// It tells lines of the source.
    pub(crate) has_lines: bool,
}

/// The variables in the file's tables of symbols.
pub(crate) fn variables(file: &File) -> io::Result<Symbols> {
    read(file, &[STT_OBJECT, STT_TLS])
}

/// The functions in them.
pub(crate) fn functions(file: &File) -> io::Result<Symbols> {
    read(file, &[STT_FUNC])
}

fn read(file: &File, kinds: &[u8]) -> io::Result<Symbols> {
    let elf = Elf::of(file)?;
    let mut all = Vec::new();
    let mut bytes = 0;
    elf.symbols(kinds, |symbol| {
        bytes += symbol.name.len() + size_of::<Symbol>();
        if bytes <= MOST_BYTES {
            all.push(Symbol {
                name: symbol.name.to_owned(),
                address: symbol.address,
                size: symbol.size,
                of_threads: symbol.kind == STT_TLS,
            });
        }
    })?;
    if bytes > MOST_BYTES {
        return Err(io::Error::other(format!(
            "its symbols take more than {} MB",
            MOST_BYTES >> 20
        )));
    }
    let loaded = |segment: &Segment| Loaded {
        address: segment.address,
        offset: segment.offset,
    };
    Ok(Symbols {
        all,
        loaded: elf.segments().iter().map(loaded).collect(),
        stripped: !elf.has_own_symbols(),
        has_lines: elf.section(".debug_line").is_some(),
    })
}

/// How far the addresses of a file's mapping are from the file's own.
pub(crate) fn bias(first: &Mapped, symbols: &Symbols) -> Option<u64> {
    let page_of = |n: u64| n & !(PAGE - 1);
    symbols
        .loaded
        .iter()
        .find(|segment| page_of(segment.offset) == page_of(first.offset))
        .map(|segment| first.start.wrapping_sub(page_of(segment.address)))
}
