//! What `make fuzz` calls: parsers of foreign bytes that nobody else needs.

use std::cell::RefCell;
use std::fs::File;

use crate::{cxx, elf};

/// Symbols, notes and places of a program.
pub fn program(file: &File) {
    let names = RefCell::new(Vec::new());
    let _ = elf::functions(file, |name| {
        names.borrow_mut().push(name.to_owned());
        true
    });
    for name in names.into_inner() {
        let _ = (cxx::plain_name(&name), cxx::signature(&name));
    }
    if let Ok(notes) = elf::notes(file) {
        let notes: Vec<_> = notes.iter().collect();
        let _ = elf::places(file, &notes);
    }
    let _ = elf::offsets(file, &[0, 0x1000, u64::MAX]);
}
