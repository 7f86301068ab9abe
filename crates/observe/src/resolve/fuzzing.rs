//! What `make fuzz` calls: parsers of foreign bytes that nobody else needs.

use std::fs::File;

use super::hsperf;
use crate::mapped::{lines, symbol};

/// HotSpot's counters.
pub fn hsperfdata(bytes: &[u8]) {
    let _ = hsperf::described(bytes);
}

/// Symbols and lines of a program.
pub fn program(file: File) {
    let _ = symbol::variables(&file);
    let _ = symbol::functions(&file);
    let lines = lines::Lines::of(file);
    for address in [0, 0x1000, 0x1129, 0x1139, u64::MAX] {
        let _ = lines.find(address);
    }
}
