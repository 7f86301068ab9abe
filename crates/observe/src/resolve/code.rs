//! Which function an address in a process's code belongs to.

use std::io;

use super::lines::Lines;
use super::mem::bias;
use super::{maps, symbol};

/// The functions of a process, as it has them mapped now.
#[derive(Debug, Default)]
pub struct Functions {
    all: Vec<Function>,
    /// What is known of the source of each program and library.
    sources: Vec<Lines>,
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

impl Functions {
    /// Of all files whose code it has mapped, as far as they have symbols.
    pub(super) fn of(pid: u32) -> io::Result<Self> {
        let maps = maps::read(pid)?;
        let mut files = Vec::new();
        let mut all = Vec::new();
        let mut sources = Vec::new();
        for mapped in maps.iter().filter(|m| m.code && m.path.starts_with('/')) {
            let file = (mapped.inode, &mapped.path);
            if files.contains(&file) {
                continue;
            }
            files.push(file);
            // Its first mapping tells where it was loaded.
            let first = maps.iter().find(|m| (m.inode, &m.path) == file);
            let first = first.unwrap_or(mapped);
            let Ok(opened) = mapped.open(pid) else {
                continue;
            };
            let Ok(symbols) = symbol::functions(&opened) else {
                continue;
            };
            let Some(bias) = bias(first, &symbols) else {
                continue;
            };
            all.extend(symbols.all.into_iter().map(|symbol| {
                let start = symbol.address.wrapping_add(bias);
                Function {
                    start,
                    end: start.saturating_add(symbol.size.max(1)),
                    name: symbol.name,
                    source: sources.len(),
                    bias,
                }
            }));
            sources.push(Lines::of(opened));
        }
        all.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        all.dedup_by_key(|function| function.start);
        Ok(Self { all, sources })
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
