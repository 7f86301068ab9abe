//! What a program file says of its own code: its functions, and its USDT notes.

use std::fs::File;
use std::io;

use tailscope_signals::elf::{Elf, STT_FUNC, STT_GNU_IFUNC};
use tailscope_signals::usdt;
pub(crate) use tailscope_signals::usdt::Note;

/// Of functions that are not asked for, so many bytes of names are kept, to suggest one that is
/// like what was asked for.
const MOST_NAME_BYTES: usize = 16 << 20;
/// So many functions can be asked for at a time.
const MOST_WANTED: usize = 65_536;

/// A function, by its address in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) address: u64,
    /// Not the function itself, but one that chooses it when the program starts (IFUNC).
    pub(crate) chooses: bool,
}

/// The functions that a file names.
#[derive(Debug)]
pub(crate) struct Functions {
    /// All that are wanted, and of the others as many as are kept.
    pub(crate) all: Vec<Function>,
    /// Its own table of symbols was taken out: here are only those that others link to.
    pub(crate) stripped: bool,
}

/// The functions of the file's table of symbols and of its dynamic one.
pub(crate) fn functions(file: &File, is_wanted: impl Fn(&str) -> bool) -> io::Result<Functions> {
    let elf = Elf::of(file)?;
    let mut all = Vec::new();
    let (mut bytes, mut wanted) = (0, 0);
    elf.symbols(&[STT_FUNC, STT_GNU_IFUNC], |symbol| {
        if symbol.address == 0 {
            return;
        }
        let is_kept = if is_wanted(symbol.name) {
            wanted += 1;
            wanted <= MOST_WANTED
        } else {
            bytes += symbol.name.len() + size_of::<Function>();
            bytes <= MOST_NAME_BYTES
        };
        if is_kept {
            all.push(Function {
                name: symbol.name.to_owned(),
                address: symbol.address,
                chooses: symbol.kind == STT_GNU_IFUNC,
            });
        }
    })?;
    Ok(Functions {
        all,
        stripped: !elf.has_own_symbols(),
    })
}

/// Where in the file the code of these addresses is; `None` for what is not loaded from it.
pub(crate) fn offsets(file: &File, addresses: &[u64]) -> io::Result<Vec<Option<u64>>> {
    let elf = Elf::of(file)?;
    Ok(addresses.iter().map(|at| elf.offset_of(*at)).collect())
}

/// Where in the file those notes' instructions are, each with where its semaphore is (0: it has none).
/// `None`: one of them is not loaded from it.
pub(crate) fn places(file: &File, notes: &[&Note]) -> io::Result<Option<Vec<(u64, u64)>>> {
    let elf = Elf::of(file)?;
    let place = |note: &&Note| usdt::spot(&elf, note).map(|spot| (spot.offset, spot.semaphore));
    Ok(notes.iter().map(place).collect())
}

/// Its USDT probes, each place of each.
pub(crate) fn notes(file: &File) -> io::Result<Vec<Note>> {
    usdt::notes(&Elf::of(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ourselves() -> File {
        File::open("/proc/self/exe").expect("our own file")
    }

    #[test]
    fn a_function_of_ours_is_where_its_symbol_says() {
        let file = ourselves();
        let main = functions(&file, |name| name == "main")
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
        let error = functions(&text, |_| false).expect_err("it is no program");
        assert!(error.to_string().contains("no 64-bit ELF"), "{error}");
    }
}
