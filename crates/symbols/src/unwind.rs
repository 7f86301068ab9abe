//! Whose call led to where a thread is: from registers and a copy of its stack, by the tables that
//! compilers put into programs for exceptions (`.eh_frame`, DWARF), else by frame pointers.
//!
//! Goal: right callers of programs without frame pointers, which are most of a distribution's.
//! Rejected: the kernel's own walk by frame pointers, which passes over the callers of functions
//! without one, and says nothing of it. Chosen: framehop, which others keep; a copy that ends, or a
//! table that does not make sense, ends the chain early, and that is said.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, MayAllocateDuringUnwind, Module,
    UnwindRegsNative, Unwinder as _, UnwinderNative,
};

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use tailscope_signals::little_endian::{u32_at, u64_at};

use crate::elf::{Elf, Section, Segment, address_in};
use crate::search_table;

/// A larger section of a file is left alone: it is read into memory.
const MOST_BYTES: u64 = 64 << 20;
/// The most callers of a stack; further ones are left out.
pub const MOST_FRAMES: usize = 128;

type Bytes = Arc<[u8]>;

/// What a file says of its code: which addresses its bytes get, and how to leave its functions.
#[derive(Clone, Default)]
pub struct Code {
    segments: Vec<Segment>,
    tables: ExplicitModuleSectionInfo<Bytes>,
    length: usize,
}

impl fmt::Debug for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Code").finish_non_exhaustive()
    }
}

impl Code {
    /// Reads it from a file. At most `room` bytes are held of its tables; without them, there are
    /// frame pointers.
    ///
    /// # Errors
    /// The file can't be read, or is no ELF file.
    pub fn of(file: &File, room: usize) -> io::Result<Self> {
        let elf = Elf::of(file)?;
        let mut left = room;
        let mut data = |section: Option<&Section>| -> Option<Bytes> {
            let section = section?;
            let most = MOST_BYTES.min(left as u64);
            let mut bytes = elf.data(section, most).ok()?;
            if section.flags & SHF_COMPRESSED != 0 {
                bytes = inflated(&bytes, most as usize)?;
            }
            left -= bytes.len();
            Some(bytes.into())
        };
        let range = |section: Option<&Section>| {
            section.map(|s| s.address..s.address.saturating_add(s.size))
        };
        let named = |name| elf.section(name).filter(|s| s.kind != SHT_NOBITS);
        let eh_frame_hdr = named(".eh_frame_hdr");
        let search = data(eh_frame_hdr).filter(|bytes| {
            eh_frame_hdr.is_some_and(|section| search_table::is_sound(bytes, section.address))
        });
        let tables = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: range(named(".text")),
            got_svma: range(named(".got")),
            eh_frame_svma: range(named(".eh_frame")),
            eh_frame: data(named(".eh_frame")),
            eh_frame_hdr_svma: range(eh_frame_hdr),
            eh_frame_hdr: search,
            debug_frame: data(named(".debug_frame")),
            ..ExplicitModuleSectionInfo::default()
        };
        Ok(Self {
            segments: elf.segments().to_vec(),
            tables,
            length: room - left,
        })
    }

    /// The address (in the file's own numbering) of the first byte of a mapping that begins at this
    /// offset. A segment is mapped from the page on that it begins in; what lies before it on that
    /// page may be another segment's.
    fn mapped_at(&self, offset: u64) -> Option<u64> {
        let begins = |segment: &&Segment| segment.offset & !(PAGE - 1) == offset;
        // Of several that begin on one page, the code is the last: data that can't change comes first.
        match self.segments.iter().rfind(begins) {
            Some(segment) => Some(segment.address & !(PAGE - 1)),
            None => self.address_of(offset),
        }
    }

    /// Whether the file says how to leave its functions.
    fn has_tables(&self) -> bool {
        self.tables.eh_frame.is_some() || self.tables.debug_frame.is_some()
    }

    /// Bytes of memory that its tables take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.length
    }

    /// The address (in the file's own numbering) of a byte of the file; `None`: it is not loaded.
    #[must_use]
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        address_in(&self.segments, offset)
    }
}

/// Segments are mapped in pages of this many bytes.
const PAGE: u64 = 4096;
const SHT_NOBITS: u32 = 8;
const SHF_COMPRESSED: u64 = 0x800;

/// A compressed section, as Go's linker makes them: a header of 24 bytes, and zlib's data.
fn inflated(section: &[u8], most: usize) -> Option<Vec<u8>> {
    const HEADER: usize = 24;
    const ZLIB: u32 = 1;
    let data = section.get(HEADER..)?;
    if u32_at(section, 0) != ZLIB {
        return None;
    }
    let size = usize::try_from(u64_at(section, 8)).ok()?.min(most);
    decompress_to_vec_zlib_with_limit(data, size).ok()
}

/// One process's code.
pub struct Unwinder {
    modules: UnwinderNative<Bytes, MayAllocateDuringUnwind>,
    /// Addresses of code with tables.
    tabled: Vec<Range<u64>>,
}

impl Default for Unwinder {
    fn default() -> Self {
        Self {
            modules: UnwinderNative::new(),
            tabled: Vec::new(),
        }
    }
}

impl fmt::Debug for Unwinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwinder").finish_non_exhaustive()
    }
}

/// What is remembered between two chains, for all processes.
pub struct Memory(CacheNative<MayAllocateDuringUnwind>);

impl Default for Memory {
    fn default() -> Self {
        Self(CacheNative::new())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

/// A thread's registers and stack.
#[derive(Debug, Clone, Copy)]
pub struct Thread<'s> {
    /// The instruction.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer.
    pub fp: u64,
    /// arm64: the return address.
    pub lr: u64,
    /// Where `stack` begins in the thread's memory.
    pub from: u64,
    /// A copy of its memory.
    pub stack: &'s [u8],
}

/// A chain of callers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// Addresses inside of the calls, the innermost first.
    pub addresses: Vec<u64>,
    /// The chain reaches the function with which the thread began, and each step comes from the
    /// unwind tables: without them, a function that keeps no frame pointer hides its caller.
    pub whole: bool,
}

impl Unwinder {
    /// Adds a file's code, which the process has mapped at `addresses`, from `offset` in the file on:
    /// a process's mappings in the order of their addresses.
    pub fn add(&mut self, code: &Code, addresses: Range<u64>, offset: u64) {
        let Some(own) = code.mapped_at(offset) else {
            return;
        };
        if code.has_tables() {
            self.tabled.push(addresses.clone());
        }
        let base = addresses.start.wrapping_sub(own);
        let module = Module::new(String::new(), addresses, base, code.tables.clone());
        self.modules.add_module(module);
    }

    fn is_tabled(&self, address: u64) -> bool {
        let behind = self.tabled.partition_point(|range| range.start <= address);
        self.tabled[..behind]
            .last()
            .is_some_and(|range| address < range.end)
    }

    /// Follows the callers of a thread. `is_code` says whether the process has code at an address:
    /// a caller that lies elsewhere ends the chain.
    pub fn chain(
        &self,
        memory: &mut Memory,
        thread: Thread<'_>,
        is_code: impl Fn(u64) -> bool,
    ) -> Chain {
        let mut read = |address: u64| {
            let at = address.checked_sub(thread.from).ok_or(())?;
            let at = usize::try_from(at).map_err(|_| ())?;
            let end = at.checked_add(8).ok_or(())?;
            let bytes = thread.stack.get(at..end).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut frames =
            self.modules
                .iter_frames(thread.ip, registers(&thread), &mut memory.0, &mut read);
        let mut chain = Chain::default();
        while chain.addresses.len() < MOST_FRAMES {
            match frames.next() {
                Ok(Some(FrameAddress::InstructionPointer(ip))) => chain.addresses.push(ip),
                Ok(Some(caller)) if is_code(caller.address_for_lookup()) => {
                    chain.addresses.push(caller.address_for_lookup());
                }
                Ok(None) => {
                    chain.whole = chain.addresses.iter().all(|at| self.is_tabled(*at));
                    break;
                }
                Ok(Some(_)) | Err(_) => break,
            }
        }
        chain
    }
}

#[cfg(target_arch = "x86_64")]
fn registers(thread: &Thread<'_>) -> UnwindRegsNative {
    UnwindRegsNative::new(thread.ip, thread.sp, thread.fp)
}

#[cfg(target_arch = "aarch64")]
fn registers(thread: &Thread<'_>) -> UnwindRegsNative {
    UnwindRegsNative::new(thread.lr, thread.sp, thread.fp)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn our_own_file_has_tables_and_addresses() {
        let file = File::open("/proc/self/exe").expect("our own file");
        let code = Code::of(&file, 64 << 20).expect("read");
        assert!(code.bytes() > 0 && code.tables.eh_frame.is_some());
        let text = code.tables.text_svma.clone().expect("it has code");
        let elf = Elf::of(&file).expect("ours");
        let offset = elf.offset_of(text.start).expect("loaded");
        assert_eq!(code.address_of(offset), Some(text.start));
        let none = Code::of(&file, 0).expect("read");
        assert_eq!(none.bytes(), 0);
    }

    #[test]
    fn a_compressed_section_is_inflated_and_no_further_than_is_granted() {
        // What zlib makes of "debug", stored, behind its header in ELF.
        let mut section = [1u32.to_le_bytes(), [0; 4]].concat();
        section.extend([5u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
        section.extend(b"\x78\x01\x01\x05\x00\xfa\xffdebug\x06\x04\x02\x08");
        assert_eq!(inflated(&section, 100).as_deref(), Some(&b"debug"[..]));
        assert_eq!(inflated(&section, 4), None);
        assert_eq!(inflated(&section[..20], 100), None);
        section[0] = 2;
        assert_eq!(inflated(&section, 100), None, "zstd");
    }

    #[test]
    fn a_mapping_begins_on_the_page_of_its_segment() {
        let segment = |address, offset, size| Segment {
            address,
            offset,
            size,
        };
        let code = Code {
            segments: vec![segment(0, 0, 0x1897c), segment(0x19980, 0x18980, 0x4b000)],
            ..Code::default()
        };
        assert_eq!(code.mapped_at(0x18000), Some(0x19000));
        assert_eq!(code.mapped_at(0), Some(0));
        // Only the middle of the code is mapped here.
        assert_eq!(code.mapped_at(0x20000), Some(0x21000));
        assert_eq!(code.address_of(0x18980), Some(0x19980));
        assert_eq!(code.mapped_at(1 << 40), None);
    }

    #[test]
    fn a_caller_outside_of_the_code_ends_the_chain_and_that_is_said() {
        // Frame pointers, as of code without tables: two frames, then nonsense.
        let (from, word) = (0x1000u64, |n: u64| n.to_le_bytes());
        let stack = [word(0x1010), word(0x5001), word(0x1020), word(0x9009)].concat();
        let thread = Thread {
            ip: 0x5100,
            sp: from,
            fp: from,
            lr: 0,
            from,
            stack: &stack,
        };
        let is_code = |at: u64| (0x5000..0x6000).contains(&at);
        let chain = Unwinder::default().chain(&mut Memory::default(), thread, is_code);
        assert_eq!((chain.addresses[0], chain.whole), (0x5100, false));
        assert_eq!(chain.addresses.get(1), Some(&0x5000));
        assert_eq!(chain.addresses.len(), 2);
    }

    proptest! {
        #[test]
        fn foreign_stacks_and_tables_never_panic(
            stack: Vec<u8>, frame: Vec<u8>, header: Vec<u8>, ip: u64, sp: u64, fp: u64,
        ) {
            let tables = ExplicitModuleSectionInfo {
                eh_frame_svma: Some(0x2000..0x2000 + frame.len() as u64),
                eh_frame: Some(Arc::from(&*frame)),
                eh_frame_hdr_svma: Some(0x1000..0x1000 + header.len() as u64),
                eh_frame_hdr: search_table::is_sound(&header, 0x1000).then(|| Arc::from(&*header)),
                ..ExplicitModuleSectionInfo::default()
            };
            let mut modules = UnwinderNative::new();
            modules.add_module(Module::new(String::new(), 0..u64::MAX / 2, 0, tables));
            let unwinder = Unwinder { modules, tabled: Vec::new() };
            let thread = Thread { ip, sp, fp, lr: 0, from: sp & !1023, stack: &stack };
            let chain = unwinder.chain(&mut Memory::default(), thread, |_| true);
            prop_assert!(chain.addresses.len() <= MOST_FRAMES);
        }
    }
}
