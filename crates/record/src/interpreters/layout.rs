//! Where CPython keeps the functions that its threads run: offsets in structures that differ between its
//! versions, but for their last number.
//!
//! 3.11 and 3.12: as a compiler lays out the structures in `Include/cpython/code.h` and
//! `Include/internal/pycore_{runtime,interp,frame}.h`. 3.13 has the offsets in front of its variable
//! `_PyRuntime` (`_Py_DebugOffsets` in `pycore_runtime.h`).

use std::io;

use tailscope_kernel::PythonFrames;
use tailscope_signals::little_endian::u64_at;

/// Memory of a process: fills the bytes with what is at an address.
pub(crate) trait Memory {
    /// # Errors
    /// Not all of it is there.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Where a process has what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// For the kernel's programs.
    pub(crate) frames: PythonFrames,
    /// To read what code objects are called.
    pub(crate) code: CodeLayout,
    /// The C function that runs functions of Python, where it begins and ends.
    pub(crate) runs: (u64, u64),
}

/// Offsets in code objects and in texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodeLayout {
    /// The address of the type of all code objects.
    pub(crate) kind: u64,
    pub(crate) file: u32,
    pub(crate) name: u32,
    pub(crate) line: u32,
    pub(crate) text: TextLayout,
}

/// Offsets in a text (`PyUnicodeObject`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextLayout {
    pub(crate) length: u32,
    pub(crate) state: u32,
    /// The characters, if all are ASCII.
    pub(crate) ascii: u32,
    /// The characters, if not.
    pub(crate) other: u32,
}

/// What the symbols of a process's interpreter are, as addresses in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// `_PyRuntime`
    pub(crate) runtime: u64,
    /// `Py_Version`
    pub(crate) version: u64,
    /// `PyCode_Type`
    pub(crate) code_type: u64,
    /// `_PyEval_EvalFrameDefault`, where it begins and ends.
    pub(crate) runs: (u64, u64),
}

/// In front of `_PyRuntime`, since 3.13.
const COOKIE: &[u8; 8] = b"xdebugpy";
/// The bytes of `_Py_DebugOffsets` of 3.13.
const DEBUG_OFFSETS: usize = 584;
/// No offset is as large as this.
const OFFSET_LIMIT: u64 = 1 << 20;
/// `FRAME_OWNED_BY_CSTACK`: such a frame is no function's, but stands for the C function's own caller.
const OWNED_BY_C: u32 = 3;
/// The length of a pointer: the main interpreter is behind the newest one.
const POINTER: u64 = 8;

/// Where a process keeps them; `None`: its version's layout is not known.
pub(crate) fn of(addresses: &Addresses, memory: &impl Memory) -> Option<Layout> {
    let mut version = [0; 8];
    memory.read(addresses.version, &mut version).ok()?;
    match u64::from_le_bytes(version) >> 16 {
        0x030b => Some(of_3_11(addresses)),
        0x030c => Some(of_3_12(addresses)),
        0x030d => of_3_13(addresses, memory),
        _ => None,
    }
}

fn with(addresses: &Addresses, frames: PythonFrames, text: TextLayout) -> Layout {
    Layout {
        frames,
        code: CodeLayout {
            kind: addresses.code_type,
            file: frames.file,
            name: frames.name,
            line: frames.line,
            text,
        },
        runs: addresses.runs,
    }
}

fn of_3_11(addresses: &Addresses) -> Layout {
    let frames = PythonFrames {
        interpreter: addresses.runtime.wrapping_add(48),
        threads: 16,
        next: 8,
        number: 160,
        frame: 56,
        through: 8 + 1,
        previous: 48,
        code: 32,
        owner: 68, // `is_entry`
        last: 1,
        last_is_none: 0,
        name: 128,
        file: 112,
        line: 72,
        reserved: 0,
    };
    let text = TextLayout {
        length: 16,
        state: 32,
        ascii: 48,
        other: 72,
    };
    with(addresses, frames, text)
}

fn of_3_12(addresses: &Addresses) -> Layout {
    let frames = PythonFrames {
        interpreter: addresses.runtime.wrapping_add(48),
        threads: 72,
        next: 8,
        number: 144,
        frame: 56,
        through: 1,
        previous: 8,
        code: 0,
        owner: 70,
        last: OWNED_BY_C,
        last_is_none: 1,
        name: 128,
        file: 112,
        line: 68,
        reserved: 0,
    };
    let text = TextLayout {
        length: 16,
        state: 32,
        ascii: 40,
        other: 56,
    };
    with(addresses, frames, text)
}

fn of_3_13(addresses: &Addresses, memory: &impl Memory) -> Option<Layout> {
    let mut offsets = [0; DEBUG_OFFSETS];
    memory.read(addresses.runtime, &mut offsets).ok()?;
    let offset = |at: usize| {
        let offset = u64_at(&offsets, at);
        (offset < OFFSET_LIMIT).then_some(offset as u32)
    };
    let ascii = offset(560)?;
    // Without the GIL, objects and texts have other layouts.
    if offsets[..8] != *COOKIE || u64_at(&offsets, 8) >> 16 != 0x030d || ascii != 40 {
        return None;
    }
    let newest = u64::from(offset(40)?);
    let frames = PythonFrames {
        interpreter: addresses.runtime.wrapping_add(newest + POINTER),
        threads: offset(72)?,
        next: offset(168)?,
        number: offset(200)?,
        frame: offset(184)?,
        through: 0,
        previous: offset(232)?,
        code: offset(240)?,
        owner: offset(264)?,
        last: OWNED_BY_C,
        last_is_none: 1,
        name: offset(296)?,
        file: offset(280)?,
        line: offset(312)?,
        reserved: 0,
    };
    let text = TextLayout {
        length: offset(552)?,
        state: offset(544)?,
        ascii,
        other: ascii + 16,
    };
    Some(with(addresses, frames, text))
}
