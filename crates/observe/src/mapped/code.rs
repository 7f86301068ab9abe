//! Which function an address in a process's code belongs to.

use std::fs::File;
use std::io;

use tailscope_process::maps::{self, Mapping};
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::lines::Lines;
use tailscope_symbols::table::{self, Symbols};

/// The functions of a process, as it has them mapped now.
#[derive(Debug, Default)]
pub struct Functions {
    all: Vec<Function>,
    /// What is known of the source of each program and library.
    sources: Vec<Lines>,
    /// Code whose names were taken out.
    stripped: Vec<Stripped>,
    /// What should be known before names and lines are believed.
    notices: Vec<String>,
}

/// A mapping of a program or library without a table of symbols, and without a file that has it.
#[derive(Debug)]
struct Stripped {
    start: u64,
    end: u64,
    /// What is to be said of it.
    why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    name: String,
    /// Which of the sources.
    source: usize,
    /// How far it is from where the file has it.
    bias: u64,
}

impl Stripped {
    fn of(mapped: &Mapping, debug: &DebugFile) -> Self {
        let places = match debug.tried.as_slice() {
            [] => ", and the file does not name them".to_owned(),
            [first, rest @ ..] => format!(
                " (not {}, nor in {} other places)",
                first.display(),
                rest.len()
            ),
        };
        Self {
            start: mapped.start,
            end: mapped.end,
            why: format!(
                "{} is stripped, and its debug symbols are not installed{places}",
                mapped.path
            ),
        }
    }
}

impl Functions {
    /// Of all files whose code it has mapped, as far as they have symbols.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let maps = maps::read(pid)?;
        let mut files = Vec::new();
        let mut found = Self::default();
        for mapped in maps.iter().filter(|m| m.code && m.has_path()) {
            let file = (mapped.file, &mapped.path);
            if files.contains(&file) {
                continue;
            }
            files.push(file);
            // Its first mapping tells where it was loaded.
            let first = maps.iter().find(|m| (m.file, &m.path) == file);
            let first = first.unwrap_or(mapped);
            let Ok(opened) = mapped.open(pid) else {
                continue;
            };
            let Ok(symbols) = table::functions(&opened) else {
                continue;
            };
            if let Some(bias) = symbols.bias(first) {
                found.take(pid, mapped, opened, symbols, bias);
            }
        }
        let all = &mut found.all;
        all.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        all.dedup_by_key(|function| function.start);
        Ok(found)
    }

    /// Takes those of one file in, with what its separate file of debug symbols has.
    fn take(&mut self, pid: u32, mapped: &Mapping, opened: File, own: Symbols, bias: u64) {
        let mut symbols = own.all;
        let mut lines = opened;
        if own.stripped || !own.has_lines {
            let debug = DebugFile::of_mapped(pid, mapped, &lines);
            self.notices.extend(debug.refused.iter().map(|refused| {
                format!(
                    "{} belongs to another build than {}; its names and lines are not used",
                    refused.display(),
                    mapped.path
                )
            }));
            match debug.found {
                Some(file) => {
                    let more = table::functions(&file).unwrap_or_default();
                    symbols.extend(more.all);
                    lines = file;
                }
                None if own.stripped => self.stripped.push(Stripped::of(mapped, &debug)),
                None => {}
            }
        }
        let source = self.sources.len();
        self.all.extend(symbols.into_iter().map(|symbol| {
            let start = symbol.address.wrapping_add(bias);
            Function {
                start,
                end: start.saturating_add(symbol.size.max(1)),
                name: symbol.name,
                source,
                bias,
            }
        }));
        self.sources.push(Lines::of(lines));
    }

    /// What should be known of the names and lines of these addresses.
    pub(crate) fn notices(&self, addresses: impl Iterator<Item = u64>) -> Vec<String> {
        let mut notices = self.notices.clone();
        for address in addresses.filter(|address| self.find(*address).is_none()) {
            let inside = |code: &&Stripped| (code.start..code.end).contains(&address);
            if let Some(code) = self.stripped.iter().find(inside)
                && !notices.contains(&code.why)
            {
                notices.push(code.why.clone());
            }
        }
        notices
    }

    fn around(&self, address: u64) -> Option<&Function> {
        let after = self
            .all
            .partition_point(|function| function.start <= address);
        let function = &self.all[after.checked_sub(1)?];
        (address < function.end).then_some(function)
    }

    /// The function around an address, and how far in it is.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        let function = self.around(address)?;
        Some((&function.name, address - function.start))
    }

    /// The file and line of the call that returns to an address, as `server.c:120`, where the
    /// program was compiled to tell it.
    #[must_use]
    pub fn line(&self, address: u64) -> Option<String> {
        let function = self.around(address)?;
        // What is returned to comes after the call, and may belong to the next line.
        let call = address.wrapping_sub(function.bias).checked_sub(1)?;
        self.sources[function.source].find(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    #[unsafe(no_mangle)]
    fn tailscope_test_function(n: u64) -> u64 {
        std::hint::black_box(n + 1)
    }

    #[test]
    fn a_function_of_ours_is_found_by_its_address() {
        let functions = Functions::of(std::process::id()).expect("ours");
        assert_eq!(tailscope_test_function(1), 2);
        let address = tailscope_test_function as fn(u64) -> u64 as usize as u64;
        assert_eq!(
            functions.find(address),
            Some(("tailscope_test_function", 0))
        );
        assert_eq!(functions.find(address + 1).map(|found| found.1), Some(1));
        assert!(
            functions
                .line(address + 1)
                .is_none_or(|line| line.starts_with("code.rs:"))
        );
        assert_eq!((functions.find(1), functions.line(1)), (None, None));
        assert_eq!(Functions::default().find(address), None);
    }
}
