//! What a program file says of its own code: its functions, and its USDT notes.

use std::fs::File;
use std::io;

use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolFlags, elf,
};

type Parsed<'c, 'f> = ElfFile64<'c, Endianness, &'c ReadCache<&'f File>>;

/// A function, by its address in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) address: u64,
    /// Not the function itself, but one that chooses it when the program starts (IFUNC).
    pub(crate) chooses: bool,
}

/// A place in the code that carries a USDT probe, by addresses in the file's own numbering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) provider: String,
    pub(crate) name: String,
    /// Of its instruction, as the linker wrote it.
    address: u64,
    /// Of the section `.stapsdt.base` when it did: a tool that moved the file's code since (prelink)
    /// moved that too, and leaves notes as they are.
    base: u64,
    /// Of the word that counts who listens; 0: it has none.
    semaphore: u64,
}

fn parsed<T>(file: &File, read: impl FnOnce(&Parsed<'_, '_>) -> T) -> io::Result<T> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::parse(&cache)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("no 64-bit ELF: {e}")))?;
    Ok(read(&elf))
}

/// The functions that a file names.
#[derive(Debug)]
pub(crate) struct Functions {
    pub(crate) all: Vec<Function>,
    /// Its own table of symbols was taken out: here are only those that others link to.
    pub(crate) stripped: bool,
}

/// All functions of the file's table of symbols and of its dynamic one.
pub(crate) fn functions(file: &File) -> io::Result<Functions> {
    parsed(file, |elf| Functions {
        stripped: elf.symbols().next().is_none(),
        all: elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|symbol| !symbol.is_undefined() && symbol.address() != 0)
            .filter_map(|symbol| {
                let SymbolFlags::Elf { st_info, .. } = symbol.flags() else {
                    return None;
                };
                let kind = st_info.st_type();
                let chooses = kind == elf::STT_GNU_IFUNC;
                if kind != elf::STT_FUNC && !chooses {
                    return None;
                }
                // In some tables a name carries its version: memcpy@@GLIBC_2.14.
                let name = symbol.name().ok()?;
                Some(Function {
                    name: name.split('@').next()?.to_owned(),
                    address: symbol.address(),
                    chooses,
                })
            })
            .collect(),
    })
}

/// Where in the file the code of these addresses is; `None` for what is not loaded from it.
pub(crate) fn offsets(file: &File, addresses: &[u64]) -> io::Result<Vec<Option<u64>>> {
    parsed(file, |elf| {
        let offset = |address: u64| {
            elf.segments().find_map(|segment| {
                let (offset, size) = segment.file_range();
                let into = address.checked_sub(segment.address())?;
                (into < size).then_some(offset + into)
            })
        };
        addresses.iter().map(|address| offset(*address)).collect()
    })
}

/// Where in the file those notes' instructions are, each with where its semaphore is (0: it has none).
/// `None`: one of them is not loaded from it.
pub(crate) fn places(file: &File, notes: &[&Note]) -> io::Result<Option<Vec<(u64, u64)>>> {
    let base = parsed(file, |elf| {
        elf.section_by_name(".stapsdt.base").map(|s| s.address())
    })?;
    let addresses: Vec<u64> = notes
        .iter()
        .flat_map(|note| {
            let moved = match base {
                Some(base) if note.base != 0 => base.wrapping_sub(note.base),
                _ => 0,
            };
            [note.address.wrapping_add(moved), note.semaphore]
        })
        .collect();
    let offsets = offsets(file, &addresses)?;
    Ok(notes
        .iter()
        .zip(offsets.chunks_exact(2))
        .map(|(note, offsets)| match note.semaphore {
            0 => Some((offsets[0]?, 0)),
            _ => Some((offsets[0]?, offsets[1]?)),
        })
        .collect())
}

/// Its USDT probes, each place of each.
pub(crate) fn notes(file: &File) -> io::Result<Vec<Note>> {
    parsed(file, |elf| {
        let section = elf.section_by_name(".note.stapsdt");
        let bytes = section.and_then(|s| s.data().ok()).unwrap_or_default();
        let mut notes = Vec::new();
        let mut at = 0;
        while let Some((note, next)) = note_at(bytes, at) {
            at = next;
            notes.extend(note);
        }
        notes
    })
}

/// The note at `at` (if it is a probe's) and where the next one begins: three lengths, the owner,
/// then three addresses and three strings, each part padded to four bytes.
fn note_at(bytes: &[u8], at: usize) -> Option<(Option<Note>, usize)> {
    let word = |at: usize| {
        let word = bytes.get(at..at.checked_add(4)?)?;
        Some(u32::from_le_bytes(word.try_into().ok()?) as usize)
    };
    let (owner_length, length) = (word(at)?, word(at + 4)?);
    let owner_at = at + 12;
    let described_at = owner_at.checked_add(owner_length.checked_next_multiple_of(4)?)?;
    let next = described_at.checked_add(length.checked_next_multiple_of(4)?)?;
    let owner = bytes.get(owner_at..owner_at + owner_length)?;
    let described = bytes.get(described_at..described_at.checked_add(length)?)?;
    let note = (owner == b"stapsdt\0")
        .then(|| {
            let address = |at: usize| {
                let address = described.get(at..at + 8)?;
                Some(u64::from_le_bytes(address.try_into().ok()?))
            };
            let mut strings = described.get(24..)?.split(|byte| *byte == 0);
            let mut text = || Some(String::from_utf8_lossy(strings.next()?).into_owned());
            Some(Note {
                provider: text()?,
                name: text()?,
                address: address(0)?,
                base: address(8)?,
                semaphore: address(16)?,
            })
        })
        .flatten();
    Some((note, next))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ourselves() -> File {
        File::open("/proc/self/exe").expect("our own file")
    }

    #[test]
    fn a_function_of_ours_is_where_its_symbol_says() {
        let file = ourselves();
        let main = functions(&file)
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
        let error = functions(&text).expect_err("it is no program");
        assert!(error.to_string().contains("no 64-bit ELF"), "{error}");
    }

    fn note(provider: &str, name: &str) -> Vec<u8> {
        let described = [
            &[0; 24],
            format!("{provider}\0{name}\0-8@%rax\0").as_bytes(),
        ]
        .concat();
        let mut bytes = Vec::new();
        for word in [8, described.len() as u32, 3] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(b"stapsdt\0");
        bytes.extend(&described);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    /// The instruction at the beginning of a function of ours, and the word that a semaphore could be.
    #[test]
    fn a_note_is_where_its_instruction_is_loaded_from() {
        let file = ourselves();
        let functions = functions(&file).expect("our file is read").all;
        let main = functions.iter().find(|f| f.name == "main").expect("main");
        let expected = offsets(&file, &[main.address]).expect("read")[0].expect("loaded");
        let note = |address, semaphore| Note {
            provider: "p".into(),
            name: "n".into(),
            address,
            base: 0,
            semaphore,
        };
        let found = |notes: &[&Note]| places(&file, notes).expect("our file is read");
        assert_eq!(found(&[&note(main.address, 0)]), Some(vec![(expected, 0)]));
        let counted = note(main.address, main.address + 8);
        assert_eq!(found(&[&counted]), Some(vec![(expected, expected + 8)]));
        assert_eq!(
            found(&[&counted, &note(u64::MAX, 0)]),
            None,
            "in no segment"
        );
        assert_eq!(
            found(&[&note(main.address, u64::MAX)]),
            None,
            "in no segment"
        );
    }

    proptest! {
        #[test]
        fn notes_come_back_as_they_went(
            names in proptest::collection::vec(("[a-z]{1,9}", "[a-z_]{1,20}"), 1..5),
        ) {
            let bytes: Vec<u8> = names.iter().flat_map(|(p, n)| note(p, n)).collect();
            let (mut at, mut found) = (0, Vec::new());
            while let Some((note, next)) = note_at(&bytes, at) {
                found.extend(note.map(|n| (n.provider, n.name)));
                at = next;
            }
            prop_assert_eq!(found, names);
        }

        #[test]
        fn foreign_notes_never_panic(bytes: Vec<u8>, at in 0usize..64) {
            let _ = note_at(&bytes, at);
        }
    }
}
