//! What the code is called in which ticks met threads: of processes that still run when a window is
//! written, by the symbols of their files and their maps of code that they made.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

use tailscope_process::maps::{self, Mapping};
use tailscope_process::rooted::FileKey;
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::elf::{Elf, Segment};
use tailscope_symbols::functions::Functions;
use tailscope_symbols::perf_map;

use super::machine;
use crate::window::Ran;

/// Files whose symbols are kept, at most.
const MOST_FILES: usize = 128;
/// Bytes of a process's map of its own code that are read, at most, from its end.
const MOST_MAP: u64 = 16 << 20;
/// What code is called that a process made at run time, and of which it does not say more.
const JIT: &str = "[JIT]";
/// When a process began is known to a hundredth of a second, in ns.
const COARSE_NS: u64 = 20_000_000;

/// Which version of a file it is: its length, and when it was written to.
type Version = (u64, i64, i64);

/// A file's functions, and where in memory its bytes are, in its own numbering.
#[derive(Debug, Default)]
struct Code {
    segments: Vec<Segment>,
    functions: Functions,
}

impl Code {
    fn of(pid: u32, mapping: &Mapping, file: File) -> Self {
        let segments = Elf::of(&file).map_or_else(|_| Vec::new(), |elf| elf.segments().to_vec());
        let debug = DebugFile::of_mapped(pid, mapping, &file).found;
        Self {
            segments,
            // Lines take seconds to read, and the next window waits.
            functions: Functions::of_symbols(file, debug),
        }
    }

    fn name(&self, offset: u64) -> Option<String> {
        let address = self.segments.iter().find_map(|segment| {
            let into = offset.checked_sub(segment.offset)?;
            (into < segment.size).then(|| segment.address.checked_add(into))?
        });
        self.functions.find(address?).into_iter().next()
    }
}

/// Names functions, and keeps what it knows of files from window to window.
#[derive(Debug, Default)]
pub(super) struct FunctionNames {
    files: HashMap<(FileKey, Version), Code>,
}

impl FunctionNames {
    /// The names of the code where processes ran, by process and address, as far as they are known.
    pub(super) fn of(&mut self, ran: &BTreeMap<u32, Ran>) -> BTreeMap<u32, BTreeMap<u64, String>> {
        let pids: Vec<u32> = ran.keys().copied().collect();
        let started = machine::started(&pids);
        let mut found = BTreeMap::new();
        for (&pid, ran) in ran {
            // One that began later has the number of the one that ran.
            let is_it = |began: &u64| *began <= ran.first + COARSE_NS;
            if started.get(&pid).is_some_and(is_it) {
                let names = self.of_process(pid, &ran.addresses);
                found.extend((!names.is_empty()).then_some((pid, names)));
            }
        }
        found
    }

    fn of_process(&mut self, pid: u32, addresses: &BTreeSet<u64>) -> BTreeMap<u64, String> {
        let mut mappings = maps::read(pid).unwrap_or_default();
        mappings.retain(|mapping| mapping.code);
        let mut names = BTreeMap::new();
        let mut made = BTreeSet::new();
        for &address in addresses {
            let of = mappings.partition_point(|mapping| mapping.start <= address);
            match mappings[..of].last().filter(|last| address < last.end) {
                Some(mapping) if mapping.has_path() => {
                    let offset = address - mapping.start + mapping.offset;
                    let name = self.code(pid, mapping).and_then(|code| code.name(offset));
                    names.insert(address, name.unwrap_or_else(|| file_name(mapping)));
                }
                Some(mapping) if mapping.is_memory() => {
                    names.insert(address, JIT.to_owned());
                    made.insert(address);
                }
                // The kernel's own, such as [vdso].
                Some(mapping) => {
                    names.insert(address, mapping.path.clone());
                }
                None => {}
            }
        }
        if !made.is_empty() {
            names.extend(of_made(pid, made));
        }
        names
    }

    fn code(&mut self, pid: u32, mapping: &Mapping) -> Option<&Code> {
        let file = mapping.open(pid).ok()?;
        let about = file.metadata().ok()?;
        let version = (about.len(), about.mtime(), about.mtime_nsec());
        let key = (mapping.file, version);
        if self.files.len() >= MOST_FILES && !self.files.contains_key(&key) {
            self.files.clear();
        }
        let code = self.files.entry(key);
        Some(code.or_insert_with(|| Code::of(pid, mapping, file)))
    }
}

/// What code is called in a file without a symbol for it: `[libc.so.6]`.
fn file_name(mapping: &Mapping) -> String {
    let name = mapping.name().file_name().unwrap_or_default();
    format!("[{}]", name.to_string_lossy())
}

/// Names of code that a process made at run time, from its perf map.
fn of_made(pid: u32, addresses: BTreeSet<u64>) -> BTreeMap<u64, String> {
    let names = || {
        let map = perf_map::open(pid)?;
        let length = map.metadata()?.len();
        perf_map::names(&map, length, MOST_MAP, addresses)
    };
    names().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function that no compiler puts into another one.
    #[inline(never)]
    fn landmark() -> u64 {
        std::hint::black_box(landmark as *const () as u64)
    }

    #[test]
    fn the_code_of_a_process_that_runs_has_names() {
        let at = landmark();
        let ran = |first| Ran {
            first,
            addresses: [at, 8].into(),
        };
        let own = std::process::id();
        let ended = u32::MAX;
        let mut names = FunctionNames::default();
        let found = names.of(&[(own, ran(u64::MAX / 2)), (ended, ran(u64::MAX / 2))].into());
        assert_eq!(found.keys().collect::<Vec<_>>(), [&own]);
        let name = &found[&own][&at];
        assert!(name.ends_with("landmark"), "{name}");
        let in_file = Mapping {
            path: "/usr/lib/libx.so.1 (deleted)".into(),
            ..maps::own().expect("mappings").remove(0)
        };
        assert_eq!(file_name(&in_file), "[libx.so.1]");
        assert!(!found[&own].contains_key(&8));
        assert_eq!(names.files.len(), 1);
    }

    #[test]
    fn a_process_that_began_after_the_ticks_is_another_one() {
        let ran = Ran {
            first: 1,
            addresses: [landmark()].into(),
        };
        let found = FunctionNames::default().of(&[(std::process::id(), ran)].into());
        assert!(found.is_empty());
    }
}
