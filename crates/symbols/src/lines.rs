//! Lines of the source, as compilers put them into a program's file (`-g`, DWARF).

use std::fmt;
use std::fs::File;
use std::sync::{Mutex, OnceLock};

use addr2line::Context;

use crate::dwarf::{self, Reader};

/// No compiler puts more functions into one another.
const MOST_INLINED: usize = 64;

/// Of one file. It is read when the first line is asked for, so when the observation is over.
pub struct Lines {
    file: File,
    read: OnceLock<Option<Mutex<Context<Reader>>>>,
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Lines {
    /// Of a program, or of its separate debug file. Nothing is read yet.
    #[must_use]
    pub fn of(file: File) -> Self {
        Self {
            file,
            read: OnceLock::new(),
        }
    }

    /// `FILE:LINE` of the instruction at an address, in the file's own numbering; `None`: the file
    /// does not tell.
    pub fn find(&self, address: u64) -> Option<String> {
        let read = self.read.get_or_init(|| read(&self.file).map(Mutex::new));
        let context = read.as_ref()?.lock().ok()?;
        // The library looks between it and the next one, which the last of all has not.
        address.checked_add(1)?;
        let found = context.find_location(address).ok()??;
        let file = found.file?.rsplit('/').next()?;
        Some(format!("{file}:{}", found.line?))
    }

    /// The functions at an address, the innermost inlined one first, as the compiler's symbols name
    /// them; empty: the file does not tell.
    pub fn functions(&self, address: u64) -> Vec<String> {
        let read = self.read.get_or_init(|| read(&self.file).map(Mutex::new));
        let Some(context) = read.as_ref().and_then(|context| context.lock().ok()) else {
            return Vec::new();
        };
        if address == u64::MAX {
            return Vec::new();
        }
        let Ok(mut frames) = context.find_frames(address).skip_all_loads() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while found.len() < MOST_INLINED
            && let Ok(Some(frame)) = frames.next()
        {
            let name = frame.function.as_ref().map(|f| f.raw_name());
            match name {
                Some(Ok(name)) => found.push(name.into_owned()),
                _ => return Vec::new(), // a chain with a gap is no chain
            }
        }
        found
    }
}

fn read(file: &File) -> Option<Context<Reader>> {
    Context::from_dwarf(dwarf::read(file, dwarf::MOST_BYTES)?).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_file_that_is_no_program_has_no_lines() {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(b"#!/bin/sh\n").expect("written");
        assert_eq!(Lines::of(file).find(0x1000), None);
    }

    proptest! {
        #[test]
        fn foreign_sections_never_panic(info: Vec<u8>, line: Vec<u8>, other: Vec<u8>, at: u64) {
            let found = dwarf::of_sections(|name| match name {
                ".debug_info" => Arc::from(&*info),
                ".debug_line" => Arc::from(&*line),
                _ => Arc::from(&*other),
            });
            if let Some(Ok(context)) = found.map(Context::from_dwarf)
                && at < u64::MAX
            {
                let _ = context.find_location(at);
            }
        }
    }
}
