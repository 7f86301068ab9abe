//! The symbols of a program file: its functions and global variables.

use std::fs::File;
use std::io;

use tailscope_process::maps::Mapping;

use crate::elf::{Elf, STT_FUNC, STT_GNU_IFUNC, STT_OBJECT, STT_TLS, Segment};

/// Memory that all symbols of one file may take. A file can claim any number of them.
const MOST_BYTES: usize = 256 << 20;
/// The most bytes of names that are kept of functions that nobody asked for: they are suggested
/// where a name is misspelt.
const MOST_NAME_BYTES: usize = 16 << 20;
/// The most functions that can be asked for at a time.
const MOST_WANTED: usize = 65_536;
/// Segments lie on pages of this many bytes.
const PAGE: u64 = 4096;

/// A variable or function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// As the file has it.
    pub name: String,
    /// In the file's own numbering.
    pub address: u64,
    /// Bytes; 0: the file does not say.
    pub size: u64,
    /// `STT_…`.
    pub kind: u8,
}

impl Symbol {
    /// Each thread has one of its own: no address in the file leads to it.
    #[must_use]
    pub fn is_thread_local(&self) -> bool {
        self.kind == STT_TLS
    }

    /// Not the function itself, but one that chooses it when the program starts (IFUNC).
    #[must_use]
    pub fn is_chooser(&self) -> bool {
        self.kind == STT_GNU_IFUNC
    }
}

/// What a file says of them.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Those of its table of symbols and of its dynamic one.
    pub all: Vec<Symbol>,
    /// The pieces of it that are loaded.
    pub segments: Vec<Segment>,
    /// Its own table of symbols was taken out: here are only those that others link to.
    pub stripped: bool,
    /// It tells lines of the source.
    pub has_lines: bool,
}

impl Symbols {
    /// How far the addresses of a file's first mapping are from the file's own.
    #[must_use]
    pub fn bias(&self, first: &Mapping) -> Option<u64> {
        let page_of = |n: u64| n & !(PAGE - 1);
        self.segments
            .iter()
            .find(|segment| page_of(segment.offset) == page_of(first.offset))
            .map(|segment| first.start.wrapping_sub(page_of(segment.address)))
    }
}

/// All variables.
///
/// # Errors
/// The file can't be read, is no ELF file, or claims more symbols than memory is granted.
pub fn variables(file: &File) -> io::Result<Symbols> {
    all(file, &[STT_OBJECT, STT_TLS])
}

/// The functions and variables that are wanted.
///
/// # Errors
/// The file can't be read, or is no ELF file.
pub fn named(file: &File, is_wanted: impl Fn(&str) -> bool) -> io::Result<Symbols> {
    let mut wanted = 0;
    read(file, &[STT_OBJECT, STT_FUNC], |name, _| {
        let is_kept = is_wanted(name) && wanted < MOST_WANTED;
        wanted += usize::from(is_kept);
        is_kept
    })
}

/// All functions.
///
/// # Errors
/// As [`variables`].
pub fn functions(file: &File) -> io::Result<Symbols> {
    all(file, &[STT_FUNC])
}

/// The functions that are wanted, and of the others as many as are kept to suggest one. Those that
/// choose another are among them.
///
/// # Errors
/// The file can't be read, or is no ELF file.
pub fn functions_named(file: &File, is_wanted: impl Fn(&str) -> bool) -> io::Result<Symbols> {
    let (mut bytes, mut wanted) = (0, 0);
    read(file, &[STT_FUNC, STT_GNU_IFUNC], |name, address| {
        if address == 0 {
            false
        } else if is_wanted(name) {
            wanted += 1;
            wanted <= MOST_WANTED
        } else {
            bytes += memory_of(name);
            bytes <= MOST_NAME_BYTES
        }
    })
}

/// Whether a file has more than the symbols that loading it needs: it is a program that was not stripped, or a
/// debug file.
#[must_use]
pub fn is_whole(file: &File) -> bool {
    Elf::of(file).is_ok_and(|elf| elf.has_own_symbols() || elf.section(".debug_line").is_some())
}

fn all(file: &File, kinds: &[u8]) -> io::Result<Symbols> {
    let mut bytes = 0;
    let symbols = read(file, kinds, |name, _| {
        bytes += memory_of(name);
        bytes <= MOST_BYTES
    })?;
    if bytes > MOST_BYTES {
        return Err(io::Error::other(format!(
            "its symbols take more than {} MB",
            MOST_BYTES >> 20
        )));
    }
    Ok(symbols)
}

fn memory_of(name: &str) -> usize {
    name.len() + size_of::<Symbol>()
}

fn read(
    file: &File,
    kinds: &[u8],
    mut is_kept: impl FnMut(&str, u64) -> bool,
) -> io::Result<Symbols> {
    let elf = Elf::of(file)?;
    let mut all = Vec::new();
    elf.symbols(kinds, |symbol| {
        if is_kept(symbol.name, symbol.address) {
            all.push(Symbol {
                name: symbol.name.to_owned(),
                address: symbol.address,
                size: symbol.size,
                kind: symbol.kind,
            });
        }
    })?;
    Ok(Symbols {
        all,
        segments: elf.segments().to_vec(),
        stripped: !elf.has_own_symbols(),
        has_lines: elf.section(".debug_line").is_some(),
    })
}

/// Where in the file the code of these addresses is; `None` for what is not loaded from it.
///
/// # Errors
/// The file can't be read, or is no ELF file.
pub fn offsets(file: &File, addresses: &[u64]) -> io::Result<Vec<Option<u64>>> {
    let elf = Elf::of(file)?;
    Ok(addresses.iter().map(|at| elf.offset_of(*at)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_ours_is_where_its_symbol_says() {
        let file = File::open("/proc/self/exe").expect("our own file");
        let main = functions_named(&file, |name| name == "main")
            .expect("our file is read")
            .all
            .into_iter()
            .find(|function| function.name == "main")
            .expect("a program has main");
        let offset = offsets(&file, &[main.address]).expect("read")[0];
        assert!(offset.is_some_and(|o| o > 0 && o < file.metadata().expect("ours").len()));
        assert_eq!(offsets(&file, &[u64::MAX]).expect("read"), [None]);
    }

    #[test]
    fn what_is_no_program_is_an_error() {
        let text = File::open("Cargo.toml").expect("the manifest");
        let error = functions_named(&text, |_| false).expect_err("it is no program");
        assert!(error.to_string().contains("no 64-bit ELF"), "{error}");
    }
}
