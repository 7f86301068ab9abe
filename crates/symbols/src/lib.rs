//! Programs as their files describe them: symbols, USDT probes, separate debug files, lines of the
//! source, and C++ names as their authors wrote them.
//!
//! Others made these files, and may change them while they are read. [`elf`] says how that is borne.
#![forbid(unsafe_code)]

pub mod cxx;
pub mod debug_file;
pub mod elf;
pub mod lines;
pub mod nearest;
pub mod sdk;
pub mod table;
pub mod usdt;
