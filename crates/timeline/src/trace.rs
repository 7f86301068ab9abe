//! Reading a trace: a file that anybody may have written.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tailscope_kernel::timeline::is_outside;
use tailscope_signals::event::{EVENT_BYTES, Event, What, abi, at_of};

use crate::about::{About, Thread};
use crate::window::MAGIC;

/// The longest description of itself that is read.
const MOST_ABOUT: u64 = 64 << 20;
/// The most bytes of events that are read into memory.
const MOST_EVENTS: u64 = 8 << 30;

/// Whose events those are that no CPU had: spans of which programs told themselves.
pub(crate) const NO_CPU: u32 = u32::MAX;

/// A trace can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused.
    #[error("can't read {path}: {source}", path = .path.display())]
    System {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is none.
    #[error("{path} is not a window of tailscope timeline: {why}", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// A trace in memory.
#[derive(Debug)]
pub struct Trace {
    /// What it says of itself.
    pub about: About,
    cpus: Vec<Cpu>,
}

#[derive(Debug)]
struct Cpu {
    number: u32,
    events: Vec<[u8; EVENT_BYTES]>,
}

impl Trace {
    /// Reads a trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let mut file = File::open(path).map_err(|source| TraceError::System {
            path: path.to_owned(),
            source,
        })?;
        Self::read(&mut file).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => TraceError::Foreign {
                path: path.to_owned(),
                why: e.to_string(),
            },
            _ => TraceError::System {
                path: path.to_owned(),
                source: e,
            },
        })
    }

    pub(crate) fn read(file: &mut (impl Read + Seek)) -> io::Result<Self> {
        let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
        let len = file.seek(SeekFrom::End(0))?;
        if len < 24 {
            return Err(wrong("it is too short"));
        }
        file.seek(SeekFrom::Start(0))?;
        let mut magic = [0; 8];
        file.read_exact(&mut magic)?;
        if &magic != MAGIC {
            return Err(wrong("it does not start like one"));
        }
        let mut tail = [0; 16];
        file.seek(SeekFrom::Start(len - 16))?;
        file.read_exact(&mut tail)?;
        if &tail[8..] != MAGIC {
            return Err(wrong("its end is missing"));
        }
        let length = u64::from_le_bytes(tail[..8].try_into().expect("eight bytes"));
        let end = len - 16;
        if length > MOST_ABOUT || length > end - 8 {
            return Err(wrong("its description is longer than the file"));
        }
        let mut text = vec![0; length as usize];
        file.seek(SeekFrom::Start(end - length))?;
        file.read_exact(&mut text)?;
        let about: About = serde_json::from_slice(&text)
            .map_err(|e| wrong(&format!("its description can't be read: {e}")))?;
        if about.abi != abi::TL_ABI {
            return Err(wrong(&format!(
                "its events have layout {}, and this program reads {}",
                about.abi,
                abi::TL_ABI
            )));
        }
        let mut cpus = Vec::new();
        let mut left = MOST_EVENTS.min(end - length);
        for (part, cpu) in about
            .parts
            .iter()
            .map(|part| (part, part.cpu))
            .chain(about.sdk.iter().map(|part| (part, NO_CPU)))
        {
            let bytes = part.events.checked_mul(EVENT_BYTES as u64);
            let inside = bytes.and_then(|bytes| part.offset.checked_add(bytes));
            let (Some(bytes), Some(inside)) = (bytes, inside) else {
                return Err(wrong("a part is larger than any file"));
            };
            // Parts that overlap would take more memory than the file has bytes.
            if inside > end - length || bytes > left {
                return Err(wrong("a part lies outside of it"));
            }
            left -= bytes;
            let mut events = vec![[0; EVENT_BYTES]; part.events as usize];
            file.seek(SeekFrom::Start(part.offset))?;
            file.read_exact(events.as_flattened_mut())?;
            // Nearly in order already: an interrupt may have written before what it interrupted.
            events.sort_by_key(at_of);
            cpus.push(Cpu {
                number: cpu,
                events,
            });
        }
        let mut trace = Self { about, cpus };
        trace.name_the_dead();
        Ok(trace)
    }

    /// All events, of all CPUs, in the order of their time.
    pub fn events(&self) -> impl Iterator<Item = (u32, Event)> + '_ {
        self.merged(vec![0; self.cpus.len()])
    }

    /// The events from one moment to another, both included, in the order of their time.
    pub(crate) fn events_between(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (u32, Event)> + '_ {
        let first = |cpu: &Cpu| cpu.events.partition_point(|event| at_of(event) < from);
        self.merged(self.cpus.iter().map(first).collect())
            .take_while(move |(_, event)| event.at <= to)
    }

    /// The events of all CPUs, in the order of their time, from a place in each CPU's events on.
    fn merged(&self, mut next: Vec<usize>) -> impl Iterator<Item = (u32, Event)> + '_ {
        std::iter::from_fn(move || {
            let (index, bytes) = self
                .cpus
                .iter()
                .enumerate()
                .filter_map(|(index, cpu)| Some((index, cpu.events.get(next[index])?)))
                .min_by_key(|(_, bytes)| at_of(bytes))?;
            next[index] += 1;
            Some(Event::parse(bytes).map(|event| (self.cpus[index].number, event)))
        })
        .flatten()
    }

    /// The events of one CPU.
    pub fn events_of(&self, cpu: u32) -> impl Iterator<Item = Event> + '_ {
        let of = self.cpus.iter().filter(move |other| other.number == cpu);
        of.flat_map(|cpu| &cpu.events).filter_map(Event::parse)
    }

    /// The events of one CPU before a moment, the latest first.
    pub(crate) fn events_before(&self, cpu: u32, at: u64) -> impl Iterator<Item = Event> + '_ {
        let of = self.cpus.iter().find(|other| other.number == cpu);
        of.into_iter().flat_map(move |cpu| {
            let end = cpu.events.partition_point(|event| at_of(event) < at);
            cpu.events[..end].iter().rev().filter_map(Event::parse)
        })
    }

    /// A thread's name, and its process's where that has another: `memcached/mc-worker`.
    #[must_use]
    pub fn thread(&self, tid: u32) -> String {
        let Some(thread) = self.about.threads.get(&tid) else {
            return if is_outside(tid) {
                "a thread outside the recorder's PID namespace".into()
            } else {
                format!("thread {tid}")
            };
        };
        printable(&match self.about.processes.get(&thread.process) {
            Some(process) if *process != thread.name => format!("{process}/{}", thread.name),
            _ => thread.name.clone(),
        })
    }

    /// A process's name.
    pub(crate) fn process(&self, process: u32) -> String {
        let name = self.about.processes.get(&process);
        name.map_or_else(|| format!("process {process}"), |name| printable(name))
    }

    /// The name of a process's code at an address, if it is known.
    pub(crate) fn function(&self, process: u32, address: u64) -> Option<String> {
        let name = self.about.functions.get(&process)?.get(&address)?;
        Some(printable(name))
    }

    /// The name of a source of spans.
    pub(crate) fn span(&self, source: u16) -> String {
        let name = self.about.spans.get(usize::from(source));
        name.map_or_else(|| format!("span {source}"), |name| printable(name))
    }

    /// Names that threads had when they ended, which `/proc` no longer knows: from the events.
    fn name_the_dead(&mut self) {
        let mut fronts: HashMap<u32, [u8; 8]> = HashMap::new();
        let mut found: Vec<(u32, Thread)> = Vec::new();
        for (_, event) in self.events() {
            if let What::Name {
                back,
                process,
                text,
            } = event.what
            {
                if !back {
                    fronts.insert(event.tid, text);
                } else if let Some(front) = fronts.remove(&event.tid) {
                    let bytes = [front, text].concat();
                    let end = bytes
                        .iter()
                        .position(|byte| *byte == 0)
                        .unwrap_or(bytes.len());
                    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
                    found.push((event.tid, Thread { name, process }));
                }
            }
        }
        for (tid, thread) in found {
            if tid == thread.process {
                self.about
                    .processes
                    .entry(tid)
                    .or_insert_with(|| thread.name.clone());
            }
            self.about.threads.entry(tid).or_insert(thread);
        }
    }
}

/// A name that can do a terminal no harm: whoever gave it chose its bytes.
pub(crate) fn printable(name: &str) -> String {
    name.replace(
        |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER,
        "?",
    )
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;

    fn sample() -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        for at in [30u64, 10] {
            let mut event = [0; EVENT_BYTES];
            event[..8].copy_from_slice(&at.to_ne_bytes());
            event[16] = abi::TL_FAULT_OUT as u8;
            file.extend(event);
        }
        let text = serde_json::json!({
            "abi": abi::TL_ABI, "tailscope": "", "kernel": "", "arch": "", "reason": "end",
            "from_ns": 0, "to_ns": 100, "unix_offset_ns": 0, "slow_ns": null,
            "parts": [{"cpu": 3, "offset": 8, "events": 2, "from_ns": 0,
                       "overwritten": 0, "unwritten": 0}],
            "threads": {}, "processes": {}, "watched": [], "interrupts": {}, "gaps": [],
            "processes_lost": 0, "ladder": {}
        })
        .to_string();
        file.extend(text.as_bytes());
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(MAGIC);
        file
    }

    #[test]
    fn events_come_in_the_order_of_their_time() {
        let trace = Trace::read(&mut Cursor::new(sample())).expect("a trace");
        let at: Vec<_> = trace.events().map(|(cpu, event)| (cpu, event.at)).collect();
        assert_eq!(at, [(3, 10), (3, 30)]);
    }

    proptest! {
        #[test]
        fn a_damaged_trace_is_refused_or_read_and_never_more(
            at in 0usize..600, with: u8, cut in 0usize..600
        ) {
            let mut file = sample();
            let at = at % file.len();
            file[at] ^= with;
            file.truncate(file.len() - cut.min(file.len()) * usize::from(with % 2));
            if let Ok(trace) = Trace::read(&mut Cursor::new(file)) {
                prop_assert!(trace.events().count() <= 2);
            }
        }

        #[test]
        fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Trace::read(&mut Cursor::new(bytes)).is_err());
        }
    }
}
