//! Programs as their files describe them: symbols, USDT probes, separate debug files, lines of the
//! source, the functions and callers of code, and names as their authors wrote them.
//!
//! Others made these files, and may change them while they are read. [`elf`] says how that is borne.
#![forbid(unsafe_code)]

pub mod cxx;
pub mod data;
pub mod debug_file;
mod dwarf;
pub mod elf;
pub mod functions;
pub mod kallsyms;
pub mod lines;
pub mod nearest;
pub mod perf_map;
pub mod sdk;
mod search_table;
pub mod table;
pub mod unwind;
pub mod usdt;
