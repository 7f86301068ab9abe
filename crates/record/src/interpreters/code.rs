//! What a code object of Python says of its function, read from the process's memory, which may hold
//! anything.

use tailscope_kernel::PythonFrame;
use tailscope_signals::little_endian::{u32_at, u64_at};

use super::layout::{CodeLayout, Memory, TextLayout};

/// Longer names are cut, in characters.
const MOST_CHARACTERS: u64 = 512;
/// In an object: the address of its type.
const TYPE: u64 = 8;
/// In the state of a text: it is one piece of memory; its characters are all ASCII.
const COMPACT: u32 = 1 << 5;
const ASCII: u32 = 1 << 6;

/// A function, or the body of a class or module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct Function {
    /// With the classes and functions around it: `View.get`.
    pub(crate) name: String,
    pub(crate) file: String,
    /// Its first line.
    pub(crate) line: u32,
}

impl CodeLayout {
    /// The function of the code object at `code` with this [mark](PythonFrame::mark); `None`: it is
    /// something else by now. Without a file, it is not the program's, but the interpreter's own.
    pub(crate) fn function(&self, code: u64, mark: u64, memory: &impl Memory) -> Option<Function> {
        let is_code = word(memory, code.wrapping_add(TYPE))? == self.kind;
        let name = word(memory, code.wrapping_add(self.name.into()))?;
        let mut line = [0; 4];
        memory
            .read(code.wrapping_add(self.line.into()), &mut line)
            .ok()?;
        let line = u32::from_le_bytes(line);
        let file = word(memory, code.wrapping_add(self.file.into()))?;
        if !is_code || PythonFrame::mark_of(name, file, line) != mark {
            return None;
        }
        // 3.13 calls `__init__` through a frame whose name stands for its file, too.
        let path = match file == name {
            true => String::new(),
            false => self.text.read(file, memory)?,
        };
        Some(Function {
            name: self.text.read(name, memory)?,
            file: path,
            line,
        })
    }
}

impl TextLayout {
    fn read(&self, text: u64, memory: &impl Memory) -> Option<String> {
        let mut head = [0; 64];
        let head = head.get_mut(..self.ascii as usize)?;
        memory.read(text, head).ok()?;
        let fits = |at: u32, bytes: usize| at as usize + bytes <= head.len();
        if !fits(self.state, 4) || !fits(self.length, 8) {
            return None;
        }
        let state = u32_at(head, self.state as usize);
        let length = u64_at(head, self.length as usize);
        let width = u64::from(state >> 2 & 7);
        if state & COMPACT == 0 || !matches!(width, 1 | 2 | 4) || length > i64::MAX as u64 {
            return None;
        }
        let from = if state & ASCII == 0 {
            self.other
        } else {
            self.ascii
        };
        let characters = length.min(MOST_CHARACTERS);
        let mut bytes = vec![0; (characters * width) as usize];
        memory
            .read(text.wrapping_add(from.into()), &mut bytes)
            .ok()?;
        let text: Option<String> = bytes
            .chunks_exact(width as usize)
            .map(|one| {
                let number = one.iter().rev().fold(0, |n, b| n << 8 | u32::from(*b));
                char::from_u32(number)
            })
            .collect();
        text.filter(|text| !text.is_empty() && !text.contains('\0'))
    }
}

fn word(memory: &impl Memory, address: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read(address, &mut bytes).ok()?;
    Some(u64::from_le_bytes(bytes))
}

/// Memory from address 0 on.
#[cfg(any(test, fuzzing))]
struct Bytes(Vec<u8>);

#[cfg(any(test, fuzzing))]
impl Memory for Bytes {
    fn read(&self, address: u64, into: &mut [u8]) -> std::io::Result<()> {
        let from = usize::try_from(address).unwrap_or(usize::MAX);
        let to = from.saturating_add(into.len());
        let there = self
            .0
            .get(from..to)
            .ok_or(std::io::ErrorKind::InvalidInput)?;
        into.copy_from_slice(there);
        Ok(())
    }
}

/// First the version, then a code object, and from 1024 on what CPython 3.13 tells of itself.
#[cfg(fuzzing)]
pub(super) fn fuzz(bytes: &[u8]) {
    const CODE: u64 = 8;
    let memory = Bytes(bytes.to_vec());
    let Some(code_type) = word(&memory, CODE + TYPE) else {
        return;
    };
    let addresses = super::layout::Addresses {
        runtime: 1024,
        version: 0,
        code_type,
        runs: (0, 0),
    };
    let Some(layout) = super::layout::of(&addresses, &memory) else {
        return;
    };
    let at = |offset: u32| word(&memory, CODE + u64::from(offset)).unwrap_or_default();
    let (name, file) = (at(layout.code.name), at(layout.code.file));
    let mark = PythonFrame::mark_of(name, file, at(layout.code.line) as u32);
    layout.code.function(CODE, mark, &memory);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: TextLayout = TextLayout {
        length: 16,
        state: 32,
        ascii: 40,
        other: 56,
    };
    const CODE: CodeLayout = CodeLayout {
        kind: 0x1234,
        file: 112,
        name: 128,
        line: 68,
        text: TEXT,
    };

    fn put(memory: &mut Vec<u8>, at: usize, bytes: &[u8]) {
        memory.resize(memory.len().max(at + bytes.len()), 0);
        memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put_text(memory: &mut Vec<u8>, at: usize, text: &str, width: usize) {
        let is_ascii = text.is_ascii() && width == 1;
        let state = (width as u32) << 2 | COMPACT | if is_ascii { ASCII } else { 0 };
        put(
            memory,
            at + 16,
            &(text.chars().count() as u64).to_le_bytes(),
        );
        put(memory, at + 32, &state.to_le_bytes());
        let behind = if is_ascii { 40 } else { 56 };
        for (place, character) in text.chars().enumerate() {
            let bytes = u32::from(character).to_le_bytes();
            put(memory, at + behind + place * width, &bytes[..width]);
        }
    }

    /// That of the code object in `memory`.
    fn mark() -> u64 {
        PythonFrame::mark_of(2048, 1024, 17)
    }

    fn memory(name: &str, width: usize) -> Vec<u8> {
        let mut memory = Vec::new();
        put(&mut memory, 256 + 8, &0x1234u64.to_le_bytes());
        put(&mut memory, 256 + 68, &17u32.to_le_bytes());
        put(&mut memory, 256 + 112, &1024u64.to_le_bytes());
        put(&mut memory, 256 + 128, &2048u64.to_le_bytes());
        put_text(&mut memory, 1024, "/srv/app.py", 1);
        put_text(&mut memory, 2048, name, width);
        memory
    }

    #[test]
    fn a_function_has_its_name_file_and_line() {
        for (name, width) in [("View.get", 1), ("größe", 1), ("мера", 2), ("𝛼", 4)] {
            let memory = Bytes(memory(name, width));
            let function = CODE.function(256, mark(), &memory).expect("a code object");
            assert_eq!(function.name, name);
            assert_eq!(function.file, "/srv/app.py");
            assert_eq!(function.line, 17);
        }
    }

    #[test]
    fn a_frame_of_the_interpreters_own_has_no_file() {
        let mut memory = memory("__init__", 1);
        put(&mut memory, 256 + 112, &2048u64.to_le_bytes());
        let mark = PythonFrame::mark_of(2048, 2048, 17);
        let function = CODE.function(256, mark, &Bytes(memory));
        assert_eq!(function.expect("a code object").file, "");
    }

    #[test]
    fn another_function_in_its_memory_is_none() {
        let memory = memory("f", 1);
        for other in [(2056, 1024, 17), (2048, 1032, 17), (2048, 1024, 18)] {
            let mark = PythonFrame::mark_of(other.0, other.1, other.2);
            assert_eq!(CODE.function(256, mark, &Bytes(memory.clone())), None);
        }
        let mut other = memory;
        put(&mut other, 256 + 8, &0x1235u64.to_le_bytes());
        assert_eq!(CODE.function(256, mark(), &Bytes(other)), None);
    }

    #[test]
    fn a_long_name_is_cut() {
        let memory = Bytes(memory(&"x".repeat(600), 1));
        let function = CODE.function(256, mark(), &memory).expect("a code object");
        assert_eq!(function.name.len(), 512);
    }

    proptest! {
        #[test]
        fn any_memory_is_read(bytes in prop::collection::vec(any::<u8>(), 0..4096), at in 0u64..4096) {
            let mut bytes = bytes;
            put(&mut bytes, 8, &0x1234u64.to_le_bytes());
            put(&mut bytes, 112, &at.to_le_bytes());
            put(&mut bytes, 128, &at.to_le_bytes());
            put(&mut bytes, 68, &7u32.to_le_bytes());
            CODE.function(0, PythonFrame::mark_of(at, at, 7), &Bytes(bytes));
        }
    }
}
