//! ELF files that somebody else made, and may change while they are read.
//!
//! Nothing is mapped, so a file that is cut short is an error and no SIGBUS. Each length is checked
//! before memory is taken for it, and all reads of a file together are bounded: a sparse file can
//! claim a table of terabytes and cost neither memory nor time. The crate `object` takes as much memory
//! as a table claims, so here it only gets bytes that are read already. 64-bit, little-endian files only.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use object::LittleEndian;
use object::elf::FileHeader64;
use object::read::elf::{Note, NoteIterator};
use tailscope_signals::little_endian::{u16_at, u32_at, u64_at};

/// A note's section.
pub const SHT_NOTE: u32 = 7;
/// Variables.
pub const STT_OBJECT: u8 = 1;
/// Functions.
pub const STT_FUNC: u8 = 2;
/// Variables that each thread has one of.
pub const STT_TLS: u8 = 6;
/// Functions that choose another one when the program starts.
pub const STT_GNU_IFUNC: u8 = 10;

const PT_LOAD: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const SYMBOL: usize = 24;
/// Linkers make some dozens of sections and ten segments.
const MOST_SECTIONS: u64 = 65_536;
const MOST_SEGMENTS: u64 = 4_096;
/// Bytes of the sections' names.
const MOST_NAMES: u64 = 4 << 20;
/// Bytes that are read of one file in all. The largest servers have symbols of some 500 MB.
const MOST_READ: u64 = 2 << 30;
/// Symbols are read in steps of this many bytes, and their names in pages.
const STEP: usize = SYMBOL * 4096;
const PAGE: usize = 1 << 16;
const PAGES: usize = 64;
/// A longer name is passed over.
const LONGEST_NAME: usize = 16 << 10;

/// A file's headers.
#[derive(Debug)]
pub struct Elf<'f> {
    file: &'f File,
    sections: Vec<Section>,
    segments: Vec<Segment>,
    names: Vec<u8>,
    read: Cell<u64>,
}

/// A section, as its header has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Section {
    name_at: u32,
    /// `SHT_…`.
    pub kind: u32,
    /// `SHF_…`.
    pub flags: u64,
    /// Where it is in memory, in the file's own numbering.
    pub address: u64,
    /// Where it is in the file.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    link: u32,
}

/// A piece of the file that is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where in memory, in the file's own numbering.
    pub address: u64,
    /// Where in the file.
    pub offset: u64,
    /// Bytes of the file.
    pub size: u64,
}

/// The address of a byte of the file, in the file's own numbering; `None`: it is not loaded.
#[must_use]
pub fn address_in(segments: &[Segment], offset: u64) -> Option<u64> {
    segments.iter().find_map(|segment| {
        let into = offset.checked_sub(segment.offset)?;
        (into < segment.size).then(|| segment.address.checked_add(into))?
    })
}

/// A symbol that the file defines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'n> {
    /// Without its version: `memcpy` for `memcpy@@GLIBC_2.14`.
    pub name: &'n str,
    /// In the file's own numbering.
    pub address: u64,
    /// Bytes; 0: the file does not say.
    pub size: u64,
    /// `STT_…`.
    pub kind: u8,
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl<'f> Elf<'f> {
    /// Reads a file's headers.
    pub fn of(file: &'f File) -> io::Result<Self> {
        let mut elf = Self {
            file,
            sections: Vec::new(),
            segments: Vec::new(),
            names: Vec::new(),
            read: Cell::new(0),
        };
        let mut head = [0; HEADER];
        file.read_exact_at(&mut head, 0)
            .map_err(|_| invalid("no 64-bit ELF: it is too short"))?;
        // Class 2: 64 bits. Data 1: little-endian.
        if head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != 1 {
            return Err(invalid("no 64-bit ELF: its first bytes are others"));
        }
        elf.read_segments(&head)?;
        elf.read_sections(&head)?;
        Ok(elf)
    }

    fn read_segments(&mut self, head: &[u8]) -> io::Result<()> {
        let (at, count) = (u64_at(head, 32), u64::from(u16_at(head, 56)));
        if at == 0 || count == 0 {
            return Ok(());
        }
        if usize::from(u16_at(head, 54)) != SEGMENT || count > MOST_SEGMENTS {
            return Err(invalid(
                "no 64-bit ELF: its segments are not as they must be",
            ));
        }
        let table = self.bytes(at, count * SEGMENT as u64)?;
        self.segments = table
            .chunks_exact(SEGMENT)
            .filter(|entry| u32_at(entry, 0) == PT_LOAD)
            .map(|entry| Segment {
                offset: u64_at(entry, 8),
                address: u64_at(entry, 16),
                size: u64_at(entry, 32),
            })
            .collect();
        Ok(())
    }

    fn read_sections(&mut self, head: &[u8]) -> io::Result<()> {
        let at = u64_at(head, 40);
        if at == 0 {
            return Ok(());
        }
        if usize::from(u16_at(head, 58)) != SECTION {
            return Err(invalid(
                "no 64-bit ELF: its sections are not as they must be",
            ));
        }
        // Where the numbers don't fit in 16 bits, the first section holds them.
        let first = Section::parse(&self.bytes(at, SECTION as u64)?);
        let count = match u16_at(head, 60) {
            0 => first.size,
            count => count.into(),
        };
        let names = match u16_at(head, 62) {
            0xffff => first.link,
            number => number.into(),
        };
        if count > MOST_SECTIONS {
            return Err(invalid(format!("it has {count} sections, too many")));
        }
        let table = self.bytes(at, count * SECTION as u64)?;
        self.sections = table.chunks_exact(SECTION).map(Section::parse).collect();
        if let Some(section) = self.sections.get(names as usize) {
            self.names = self.data(section, MOST_NAMES)?;
        }
        Ok(())
    }

    /// The bytes of a range of the file.
    fn bytes(&self, at: u64, length: u64) -> io::Result<Vec<u8>> {
        let size = self.file.metadata()?.len();
        if at.checked_add(length).is_none_or(|end| end > size) {
            return Err(invalid("it is cut short: a part lies beyond its end"));
        }
        let mut bytes = vec![0; length as usize];
        self.charge(length)?;
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    fn charge(&self, bytes: u64) -> io::Result<()> {
        self.read.set(self.read.get().saturating_add(bytes));
        if self.read.get() > MOST_READ {
            return Err(invalid(format!(
                "it has more than {} GB to read",
                MOST_READ >> 30
            )));
        }
        Ok(())
    }

    /// The pieces of the file that are loaded.
    #[must_use]
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// All sections.
    #[must_use]
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The first section of this name.
    #[must_use]
    pub fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| {
            let text = self.names.get(section.name_at as usize..);
            text.and_then(|text| text.split(|byte| *byte == 0).next()) == Some(name.as_bytes())
        })
    }

    /// A section's bytes, of which there may be at most so many.
    pub fn data(&self, section: &Section, most: u64) -> io::Result<Vec<u8>> {
        if section.size > most {
            return Err(invalid(format!(
                "a section has {} bytes, more than the {most} that can be",
                section.size
            )));
        }
        self.bytes(section.offset, section.size)
    }

    /// Where in the file the byte at this address is; `None`: it is not loaded from the file.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let into = address.checked_sub(segment.address)?;
            (into < segment.size).then(|| segment.offset.checked_add(into))?
        })
    }

    /// Whether it has a table of its own symbols, beside that of those that others link to.
    #[must_use]
    pub fn has_own_symbols(&self) -> bool {
        self.table(SHT_SYMTAB)
            .is_some_and(|table| table.size > SYMBOL as u64)
    }

    fn table(&self, kind: u32) -> Option<&Section> {
        self.sections.iter().find(|section| section.kind == kind)
    }

    /// Each symbol of these kinds (`STT_…`) that the file defines: its own, then those that others
    /// link to.
    pub fn symbols(&self, kinds: &[u8], mut each: impl FnMut(Symbol<'_>)) -> io::Result<()> {
        for table in [SHT_SYMTAB, SHT_DYNSYM] {
            let Some(table) = self.table(table) else {
                continue;
            };
            let Some(strings) = self.sections.get(table.link as usize) else {
                continue;
            };
            let mut names = Strings::of(*strings);
            let (mut at, end) = (0, table.size - table.size % SYMBOL as u64);
            while at < end {
                let step = (end - at).min(STEP as u64);
                let offset = table.offset.checked_add(at);
                let bytes = self.bytes(offset.unwrap_or(u64::MAX), step)?;
                for entry in bytes.chunks_exact(SYMBOL) {
                    let (kind, section) = (entry[4] & 0xf, u16_at(entry, 6));
                    if section == 0 || !kinds.contains(&kind) {
                        continue;
                    }
                    if let Some(name) = names.get(self, u32_at(entry, 0))? {
                        each(Symbol {
                            name,
                            address: u64_at(entry, 8),
                            size: u64_at(entry, 16),
                            kind,
                        });
                    }
                }
                at += step;
            }
        }
        Ok(())
    }
}

/// The notes in the bytes of a section, up to one that is cut short.
pub(crate) fn notes_in(
    section: &[u8],
) -> impl Iterator<Item = Note<'_, FileHeader64<LittleEndian>>> {
    const ALIGN: u64 = 4;
    let notes = NoteIterator::new(LittleEndian, ALIGN, section);
    notes.into_iter().flatten().map_while(Result::ok)
}

impl Section {
    fn parse(entry: &[u8]) -> Self {
        Self {
            name_at: u32_at(entry, 0),
            kind: u32_at(entry, 4),
            flags: u64_at(entry, 8),
            address: u64_at(entry, 16),
            offset: u64_at(entry, 24),
            size: u64_at(entry, 32),
            link: u32_at(entry, 40),
        }
    }
}

/// A table of names, of which a few pages are held.
struct Strings {
    section: Section,
    /// Number and bytes; each has the begin of the next behind it, for names that end there.
    pages: Vec<Option<(usize, Vec<u8>)>>,
}

impl Strings {
    fn of(section: Section) -> Self {
        Self {
            section,
            pages: vec![None; PAGES],
        }
    }

    fn get(&mut self, elf: &Elf<'_>, at: u32) -> io::Result<Option<&str>> {
        let at = at as usize;
        let number = at / PAGE;
        let place = &mut self.pages[number % PAGES];
        if place.as_ref().is_none_or(|(held, _)| *held != number) {
            let from = (number * PAGE) as u64;
            let length = self.section.size.saturating_sub(from);
            let length = length.min((PAGE + LONGEST_NAME) as u64);
            let offset = self.section.offset.saturating_add(from);
            *place = Some((number, elf.bytes(offset, length)?));
        }
        let text = place
            .as_ref()
            .and_then(|(_, page)| page.get(at % PAGE..))
            .unwrap_or_default();
        let end = memchr::memchr(0, &text[..text.len().min(LONGEST_NAME)]);
        let name = end.and_then(|end| std::str::from_utf8(&text[..end]).ok());
        Ok(name.and_then(|name| name.split('@').next()))
    }
}

#[cfg(test)]
mod tests;
