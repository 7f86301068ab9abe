//! Code that processes made at run time (JIT), and its names from their perf maps.
//!
//! A map is opened when such code is first seen, so that it can be read after the process has ended.
//! It is read when the recording ends: a JVM writes it only when somebody asks for it. For a screen it is
//! read now and then.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;

use tailscope_process::owner;
use tailscope_symbols::perf_map;

/// Processes that are known, at most; the code of others has no names.
const MOST_PROCESSES: usize = 1024;
/// Bytes of all maps that are read, at most.
const MOST_BYTES: u64 = 128 << 20;

#[derive(Debug)]
struct Process {
    pid: u32,
    /// When it began: its number may be another's by now.
    began: Option<u64>,
    map: Option<File>,
    /// How long the map was when the process ended, or ran another program.
    ended: Option<u64>,
}

impl Process {
    fn length(&self) -> u64 {
        let about = self.map.as_ref().and_then(|map| map.metadata().ok());
        about.map_or(0, |about| about.len())
    }

    fn open(&mut self) {
        if self.ended.is_none() && owner::start_of(self.pid) == self.began {
            // A JVM that is asked again may replace the file.
            self.map = perf_map::open(self.pid).ok().or(self.map.take());
        }
    }

    /// How much of its map counts.
    fn length_that_counts(&mut self) -> u64 {
        self.open();
        self.ended.unwrap_or_else(|| self.length())
    }
}

/// All such processes.
#[derive(Debug, Default)]
pub(super) struct Made {
    processes: Vec<Process>,
}

/// What code is called, by its process's number and its address.
pub(super) type Names = HashMap<(u32, u64), String>;

impl Made {
    /// A process has code in its own memory. Returns its number, which it may have already.
    pub(super) fn meet(&mut self, pid: u32, known: Option<u32>) -> Option<u32> {
        let number = match known {
            Some(known) => known,
            None if self.processes.len() >= MOST_PROCESSES => return None,
            None => {
                self.processes.push(Process {
                    pid,
                    began: owner::start_of(pid),
                    map: None,
                    ended: None,
                });
                self.processes.len() as u32 - 1
            }
        };
        let process = &mut self.processes[number as usize];
        if process.map.is_none() {
            process.open();
        }
        Some(number)
    }

    /// Which process has this number.
    pub(super) fn pid(&self, number: u32) -> u32 {
        self.processes[number as usize].pid
    }

    /// The process is gone, or runs another program.
    pub(super) fn end(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        process.ended = Some(process.length());
    }

    /// What the processes call their code at some addresses. To be asked late: they write that at any time.
    pub(super) fn names(&mut self, code: impl Iterator<Item = (u32, u64)>) -> Names {
        let mut asked: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); self.processes.len()];
        for (process, address) in code {
            asked[process as usize].insert(address);
        }
        let mut names = Names::new();
        let mut room = MOST_BYTES;
        let processes = (0..).zip(&mut self.processes).zip(asked);
        for ((number, process), asked) in processes.filter(|(_, asked)| !asked.is_empty()) {
            let length = process.length_that_counts();
            let Some(map) = &process.map else { continue };
            let found = perf_map::names(map, length, room, asked).unwrap_or_default();
            names.extend(found.into_iter().map(|(at, name)| ((number, at), name)));
            room = room.saturating_sub(length.min(perf_map::MOST_BYTES));
        }
        names
    }
}
