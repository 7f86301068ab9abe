//! The code that processes have mapped: to find callers now, and names later.
//!
//! A file is opened when its code is first met, through the kernel's own link to it. So the names
//! come from the very file that ran, also if another has taken its place since. A file that is
//! written to after that has no names.

use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tailscope_kernel::StackSample;
use tailscope_process::maps::{self, Mapping};
use tailscope_process::rooted::{FileKey, Version, version};
use tailscope_symbols::debug_file::{DebugFile, build_id};
use tailscope_symbols::unwind::{Code, Memory, Thread, Unwinder};

use super::frames::Frame;
use super::made::Made;

/// Files that are kept open, at most.
const MOST_MODULES: usize = 512;
/// Processes whose mappings are remembered.
const MOST_PROCESSES: usize = 1024;
/// A process is asked again for its mappings so often at most.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// Which file it is, as it was written.
type FileId = (FileKey, Version);

/// A file with code.
#[derive(Debug)]
pub(super) struct Module {
    id: FileId,
    /// Its path as the process has it.
    pub(super) path: PathBuf,
    /// Which build it is of; empty: it does not say.
    pub(super) build_id: String,
    file: Option<File>,
    /// As it was when it was opened: what `id` has of it can be missing.
    version: Version,
    debug: Option<File>,
    code: Code,
}

impl Module {
    fn open(pid: u32, mapping: &Mapping, id: FileId, room: usize) -> Self {
        let file = mapping.open(pid).ok();
        let debug = file
            .as_ref()
            .and_then(|file| DebugFile::of_mapped(pid, mapping, file).found);
        Self {
            path: mapping.name().to_owned(),
            build_id: file.as_ref().and_then(build_id).unwrap_or_default(),
            id,
            version: file
                .as_ref()
                .and_then(|file| file.metadata().ok())
                .as_ref()
                .map(version)
                .unwrap_or_default(),
            code: file
                .as_ref()
                .and_then(|file| Code::of(file, room).ok())
                .unwrap_or_default(),
            debug,
            file,
        }
    }

    /// The file and its separate debug file, unless the file was written to meanwhile.
    pub(super) fn files(&self) -> Option<(File, Option<File>)> {
        let file = self.file.as_ref()?;
        if file.metadata().ok().as_ref().map(version) != Some(self.version) {
            return None;
        }
        let debug = self.debug.as_ref().and_then(|file| file.try_clone().ok());
        Some((file.try_clone().ok()?, debug))
    }

    /// The address of a byte of the file, in the file's own numbering.
    pub(super) fn address_of(&self, offset: u64) -> Option<u64> {
        self.code.address_of(offset)
    }
}

#[derive(Debug)]
struct Mapped {
    start: u64,
    end: u64,
    offset: u64,
    code: In,
}

/// What a mapping is of.
#[derive(Debug, Clone, Copy)]
enum In {
    Module(u32),
    /// Memory of the process itself, with code that it made at run time.
    Memory,
    /// The kernel's own, or of a file that found no room.
    Other,
}

#[derive(Debug, Default)]
struct Process {
    /// Its number in `Made`, where it has code in its own memory.
    made: Option<u32>,
    /// By address.
    mapped: Vec<Mapped>,
    unwinder: Unwinder,
    asked: Option<Instant>,
    /// Samples from before are of the program that it ran before.
    since: u64,
}

impl Process {
    fn at(&self, address: u64) -> Option<&Mapped> {
        let behind = self.mapped.partition_point(|m| m.start <= address);
        self.mapped[..behind].last().filter(|m| address < m.end)
    }

    fn frame(&self, address: u64) -> Frame {
        let mapped = self.at(address);
        match (mapped.map(|mapped| (mapped.code, mapped)), self.made) {
            (Some((In::Module(module), &Mapped { start, offset, .. })), _) => Frame::Code {
                module,
                offset: address - start + offset,
            },
            (Some((In::Memory, _)), Some(process)) => Frame::Made { process, address },
            _ => Frame::Unknown(address),
        }
    }
}

/// All processes, and the files that they have mapped.
#[derive(Debug, Default)]
pub(super) struct Processes {
    processes: HashMap<u32, Process>,
    modules: Vec<Arc<Module>>,
    numbers: HashMap<FileId, u32>,
    /// Files of the ledger before, which need not be read again as long as its names are looked for.
    former: HashMap<FileId, Weak<Module>>,
    /// Bytes of their tables, and the most that these may be.
    tables: usize,
    most_tables: usize,
    memory: Memory,
    made: Made,
}

impl Processes {
    /// Of which callers are found by this number of bytes of tables at most.
    pub(super) fn with_tables(most: usize) -> Self {
        Self {
            most_tables: most,
            ..Self::default()
        }
    }

    /// Where the thread was in its own code, as addresses and frames, the innermost first, and whether
    /// that goes back to its first function.
    pub(super) fn callers(&mut self, sample: &StackSample) -> (Vec<(u64, Frame)>, bool) {
        if self.processes.len() >= MOST_PROCESSES && !self.processes.contains_key(&sample.pid) {
            self.processes.clear();
        }
        let ip = sample.registers.ip;
        let process = self.processes.entry(sample.pid).or_default();
        if sample.at < process.since || sample.stack.is_empty() {
            return (vec![(ip, Frame::Unknown(ip))], false);
        }
        let may_ask = process
            .asked
            .is_none_or(|asked| asked.elapsed() >= ASK_AGAIN);
        if process.at(ip).is_none() && may_ask {
            self.ask(sample.pid);
        }
        let process = &self.processes[&sample.pid];
        let thread = Thread {
            ip,
            sp: sample.registers.sp,
            fp: sample.registers.fp,
            lr: sample.registers.lr,
            from: sample.from,
            stack: &sample.stack,
        };
        let is_code = |address| process.at(address).is_some();
        let chain = process.unwinder.chain(&mut self.memory, thread, is_code);
        let frames: Vec<(u64, Frame)> = chain
            .addresses
            .iter()
            .map(|at| (*at, process.frame(*at)))
            .collect();
        // Code in no file has no tables: what led to it is a guess.
        let known = frames
            .iter()
            .all(|(_, frame)| matches!(frame, Frame::Code { .. }));
        (frames, chain.whole && known)
    }

    /// Reads what the process has mapped.
    fn ask(&mut self, pid: u32) {
        let before = self.processes.get(&pid);
        let mut found = Process {
            asked: Some(Instant::now()),
            since: before.map_or(0, |process| process.since),
            made: before.and_then(|process| process.made),
            ..Process::default()
        };
        for mapping in maps::read(pid).unwrap_or_default() {
            if !mapping.code {
                continue;
            }
            let is_made = mapping.is_made_at_run_time(pid);
            let module = (mapping.has_path() && !is_made)
                .then(|| self.module(pid, &mapping))
                .flatten();
            if let Some(module) = module {
                let code = &self.modules[module as usize].code;
                found
                    .unwinder
                    .add(code, mapping.addresses(), mapping.offset);
            }
            let code = match module {
                Some(module) => In::Module(module),
                None if is_made => In::Memory,
                None => In::Other,
            };
            if matches!(code, In::Memory) {
                found.made = self.made.meet(pid, found.made);
            }
            found.mapped.push(Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                code,
            });
        }
        self.processes.insert(pid, found);
    }

    fn module(&mut self, pid: u32, mapping: &Mapping) -> Option<u32> {
        // The same file written to between two looks is another.
        let link = mapping.link(pid);
        let about = std::fs::metadata(link).ok();
        let version = about.as_ref().map(version);
        let id = (mapping.file, version.unwrap_or_default());
        if let Some(known) = self.numbers.get(&id) {
            return Some(*known);
        }
        if self.modules.len() >= MOST_MODULES {
            return None;
        }
        let room = self.most_tables.saturating_sub(self.tables);
        let former = self.former.remove(&id).and_then(|former| former.upgrade());
        // One without tables may have found no room for them.
        let former = former.filter(|module| module.code.bytes() > 0);
        let module = former.unwrap_or_else(|| Arc::new(Module::open(pid, mapping, id, room)));
        self.adopt(&module)
    }

    /// The number of a file that is known already.
    fn adopt(&mut self, module: &Arc<Module>) -> Option<u32> {
        if let Some(known) = self.numbers.get(&module.id) {
            return Some(*known);
        }
        if self.modules.len() >= MOST_MODULES {
            return None;
        }
        self.tables += module.code.bytes();
        let number = self.modules.len() as u32;
        self.modules.push(Arc::clone(module));
        self.numbers.insert(module.id, number);
        Some(number)
    }

    /// The same processes, for the next ledger: without what is known only of the past, so that
    /// nothing grows from ledger to ledger.
    pub(super) fn renewed(&self) -> Self {
        let anew = |(pid, process): (&u32, &Process)| {
            let since = process.since;
            let anew = Process {
                since,
                ..Process::default()
            };
            (*pid, anew)
        };
        Self {
            processes: self.processes.iter().map(anew).collect(),
            former: self
                .modules
                .iter()
                .map(|m| (m.id, Arc::downgrade(m)))
                .collect(),
            most_tables: self.most_tables,
            ..Self::default()
        }
    }

    /// A frame of the ledger before, in this one's numbers. Not for functions of Python.
    pub(super) fn carried(&mut self, frame: Frame, before: &Self) -> Frame {
        match frame {
            Frame::Code { module, offset } => {
                let module = self.adopt(&before.modules[module as usize]);
                module.map_or(Frame::Unknown(offset), |module| Frame::Code {
                    module,
                    offset,
                })
            }
            Frame::Made { process, address } => {
                let pid = before.made.pid(process);
                let known = self.processes.entry(pid).or_default();
                known.made = self.made.meet(pid, known.made);
                let process = known.made;
                process.map_or(Frame::Unknown(address), |process| Frame::Made {
                    process,
                    address,
                })
            }
            Frame::Kernel(_) | Frame::Python(_) | Frame::Unknown(_) => frame,
        }
    }

    /// The process runs another program since then, or is gone.
    pub(super) fn forget(&mut self, pid: u32, since: u64) {
        if let Some(made) = self.processes.get(&pid).and_then(|process| process.made) {
            self.made.end(made);
        }
        let process = Process {
            since,
            ..Process::default()
        };
        self.processes.insert(pid, process);
    }

    /// The code that the processes made, to find its names.
    pub(super) fn made(&mut self) -> &mut Made {
        &mut self.made
    }

    /// The files, by their numbers.
    pub(super) fn modules(&self) -> &[Arc<Module>] {
        &self.modules
    }
}
