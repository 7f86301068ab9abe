//! Code that processes made at run time (JIT), and its names from their perf maps.
//!
//! A map is opened when such code is first seen, so that it can be read after the process has ended.
//! It is read when the recording ends: a JVM writes it only when somebody asks for it.

use std::fs::File;

use tailscope_process::owner;
use tailscope_symbols::perf_map::{self, PerfMap};

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
    names: Option<PerfMap>,
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

    fn read(&mut self, room: u64) -> PerfMap {
        self.open();
        let length = self.ended.unwrap_or_else(|| self.length());
        let read = |map: &File| PerfMap::read(map, length, room).ok();
        self.map.as_ref().and_then(read).unwrap_or_default()
    }
}

/// All such processes.
#[derive(Debug)]
pub(super) struct Made {
    processes: Vec<Process>,
    room: u64,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            processes: Vec::new(),
            room: MOST_BYTES,
        }
    }
}

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
                    names: None,
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

    /// The process is gone, or runs another program.
    pub(super) fn end(&mut self, number: u32) {
        let process = &mut self.processes[number as usize];
        process.ended = Some(process.length());
    }

    /// What the process calls its code at an address; to be asked when the recording ends.
    pub(super) fn name(&mut self, number: u32, address: u64) -> Option<String> {
        let process = &mut self.processes[number as usize];
        if process.names.is_none() {
            let names = process.read(self.room);
            self.room = self.room.saturating_sub(process.length());
            process.names = Some(names);
        }
        let names = process.names.as_ref()?;
        names.find(address).map(str::to_owned)
    }
}
