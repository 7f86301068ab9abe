//! What `make fuzz` calls: parsers of foreign bytes that nobody else needs.

use std::fs::File;

use crate::{cxx, elf};

/// Symbols, notes and places of a program.
pub fn program(file: &File) {
    let mut names = Vec::new();
    let functions = elf::functions(file, |name| {
        names.push(name.to_owned());
        true
    });
    let _ = functions;
    for name in names {
        let _ = (cxx::plain_name(&name), cxx::signature(&name));
    }
    if let Ok(notes) = elf::notes(file) {
        let notes: Vec<_> = notes.iter().collect();
        let _ = elf::places(file, &notes);
    }
    let _ = elf::offsets(file, &[0, 0x1000, u64::MAX]);
}
