//! Names of the code where ticks met threads: of processes that still run when a window is written, by
//! the symbols of their files and their maps of code that they made.
//!
//! Anybody's process can be among them. So files are opened as [`rooted`](tailscope_process::rooted)
//! does, debug files are those of this machine's own root, and time, memory and lengths have bounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use tailscope_process::maps::{self, Mapping};
use tailscope_process::rooted::{FileKey, Version, version};
use tailscope_symbols::debug_file::DebugFile;
use tailscope_symbols::elf::{Elf, Segment, address_in};
use tailscope_symbols::functions::Functions;
use tailscope_symbols::perf_map;

use super::machine;
use crate::window::Ran;

/// How nice the thread is: it gets a tenth of a CPU that is never idle.
const NICE: i32 = 10;
/// How long naming may take before a file or a process is begun: the next window waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// Functions that are kept from window to window, at most: some 100 MB.
const MOST_FUNCTIONS: usize = 1 << 20;
/// Bytes of maps of code that processes made, at most, of all processes in a window.
const MOST_MAPS: u64 = 64 << 20;
/// Characters of a name that are kept.
const LONGEST: usize = 200;
/// What code is called that a process made at run time, and of which it does not say more.
const JIT: &str = "[JIT]";
/// When a process began is known to a hundredth of a second, in ns.
const COARSE_NS: u64 = 20_000_000;

/// A file's functions, and where in memory its bytes are, in its own numbering.
#[derive(Debug, Default)]
struct Code {
    segments: Vec<Segment>,
    functions: Functions,
}

impl Code {
    fn of(mapping: &Mapping, file: File) -> Self {
        // A thread that works and wants this CPU waits for one file at most.
        thread::yield_now();
        let segments = Elf::of(&file).map_or_else(|_| Vec::new(), |elf| elf.segments().to_vec());
        let debug = DebugFile::of(&file, mapping.name(), Path::new("/"));
        Self {
            segments,
            // Lines take seconds to read.
            functions: Functions::of_symbols(file, debug.ok().and_then(|debug| debug.found)),
        }
    }

    fn name(&self, offset: u64) -> Option<String> {
        let address = address_in(&self.segments, offset)?;
        self.functions.find(address).into_iter().next()
    }
}

/// Names functions, and keeps what it knows of files from window to window.
#[derive(Debug, Default)]
pub(super) struct FunctionNames {
    files: HashMap<(FileKey, Version), Code>,
    kept: usize,
}

impl FunctionNames {
    /// The names of the code where processes ran, as [`Self::of`] finds them on a thread of its own: that
    /// gives way to threads that work, and a thread can't take its priority back.
    pub(super) fn nicely(
        &mut self,
        ran: &BTreeMap<u32, Ran>,
        watched: &[u32],
    ) -> BTreeMap<u32, BTreeMap<u64, String>> {
        let names = || {
            // Where this fails, others wait longer.
            let _ = rustix::process::setpriority_process(None, NICE);
            self.of(ran, watched)
        };
        thread::scope(|scope| scope.spawn(names).join()).unwrap_or_default()
    }

    /// The names of the code where processes ran, by process and address, as far as they are known and
    /// there is time: those that are watched first.
    fn of(
        &mut self,
        ran: &BTreeMap<u32, Ran>,
        watched: &[u32],
    ) -> BTreeMap<u32, BTreeMap<u64, String>> {
        let until = Instant::now() + PATIENCE;
        let mut pids: Vec<u32> = ran.keys().copied().collect();
        pids.sort_by_key(|pid| !watched.contains(pid));
        let mut room = MOST_MAPS;
        let mut found = BTreeMap::new();
        for pid in pids {
            if Instant::now() >= until {
                break;
            }
            let ran = &ran[&pid];
            let names = self.of_process(pid, &ran.addresses, until, &mut room);
            // A process that began later only has the same number.
            let is_it = |began: &u64| *began <= ran.first + COARSE_NS;
            if !names.is_empty() && machine::started(&[pid]).get(&pid).is_some_and(is_it) {
                found.insert(pid, names);
            }
        }
        found
    }

    fn of_process(
        &mut self,
        pid: u32,
        addresses: &BTreeSet<u64>,
        until: Instant,
        room: &mut u64,
    ) -> BTreeMap<u64, String> {
        let mut mappings = maps::read(pid).unwrap_or_default();
        mappings.retain(|mapping| mapping.code);
        let mut names = BTreeMap::new();
        let mut made = BTreeSet::new();
        for &address in addresses {
            let of = mappings.partition_point(|mapping| mapping.start <= address);
            let Some(mapping) = mappings[..of].last().filter(|last| address < last.end) else {
                continue;
            };
            let name = if mapping.is_made_at_run_time(pid) {
                made.insert(address);
                JIT.to_owned()
            } else if mapping.has_path() {
                let offset = address - mapping.start + mapping.offset;
                let code = self.code(pid, mapping, until);
                let name = code.and_then(|code| code.name(offset));
                name.unwrap_or_else(|| file_name(mapping))
            } else {
                // The kernel's own, such as [vdso].
                mapping.path.clone()
            };
            names.insert(address, short(name));
        }
        if !made.is_empty() {
            let of_made = of_made(pid, made, room).into_iter();
            names.extend(of_made.map(|(address, name)| (address, short(name))));
        }
        names
    }

    fn code(&mut self, pid: u32, mapping: &Mapping, until: Instant) -> Option<&Code> {
        let file = mapping.open(pid).ok()?;
        let key = (mapping.file, version(&file.metadata().ok()?));
        if !self.files.contains_key(&key) {
            if Instant::now() >= until {
                return None;
            }
            let code = Code::of(mapping, file);
            let more = code.functions.count() + 1;
            if self.kept + more > MOST_FUNCTIONS {
                self.files.clear();
                self.kept = 0;
            }
            self.kept += more;
            self.files.insert(key, code);
        }
        self.files.get(&key)
    }
}

/// What code is called in a file without a symbol for it: `[libc.so.6]`.
fn file_name(mapping: &Mapping) -> String {
    let name = mapping.name().file_name().unwrap_or_default();
    format!("[{}]", name.to_string_lossy())
}

/// A name of a bearable length.
fn short(name: String) -> String {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// Names of code that a process made at run time, from its perf map.
fn of_made(pid: u32, addresses: BTreeSet<u64>, room: &mut u64) -> BTreeMap<u64, String> {
    let names = || {
        let map = perf_map::open(pid)?;
        let length = map.metadata()?.len();
        let most = *room;
        *room = room.saturating_sub(length);
        perf_map::names(&map, length, most, addresses)
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
        let ran = [(own, ran(u64::MAX / 2)), (ended, ran(u64::MAX / 2))].into();
        let found = names.of(&ran, &[]);
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
        let found = FunctionNames::default().of(&[(std::process::id(), ran)].into(), &[]);
        assert!(found.is_empty());
    }

    #[test]
    fn a_name_of_any_length_is_cut() {
        assert_eq!(short("burn".into()), "burn");
        let long = short("ü".repeat(10_000));
        assert_eq!(long.chars().count(), LONGEST + 1);
        assert!(long.ends_with("ü…"));
    }

    #[test]
    fn what_is_kept_of_files_is_bounded() {
        let mut names = FunctionNames {
            kept: MOST_FUNCTIONS,
            ..FunctionNames::default()
        };
        let ran = Ran {
            first: u64::MAX / 2,
            addresses: [landmark()].into(),
        };
        names.of(&[(std::process::id(), ran)].into(), &[]);
        assert!(names.kept < MOST_FUNCTIONS && names.files.len() == 1);
    }
}
