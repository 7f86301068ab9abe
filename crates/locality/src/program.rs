//! A running program as the sampler needs it: its code, what its memory that can't be written holds,
//! and names of functions and variables.
//!
//! Code is read from the process's memory, through `/proc/PID/mem`, which does not stop it. So code
//! that was made at run time is read too, and a breakpoint of a debugger ends a walk. Decoded
//! instructions of files are kept. Instructions elsewhere are decoded each time, because such code can
//! change.

mod fields;
mod modules;
mod outline;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use iced_x86::{Decoder, DecoderOptions, Instruction};
use tailscope_process::maps::{self, Mapping};
use tailscope_symbols::unwind::{Memory, Thread, Unwinder};

use crate::walk::{self, Registers, StackCopy};
use modules::Modules;
use outline::Outline;

/// No instruction is longer.
const LONGEST: usize = 15;
/// Decoded instructions that are kept: 25 MB.
const MOST_INSTRUCTIONS: usize = 1 << 18;
/// Names of code addresses that are kept.
const MOST_NAMED: usize = 1 << 18;
/// Functions whose instructions are kept, at most, and how long such a function may be.
const MOST_OUTLINES: usize = 1 << 12;
const LONGEST_FUNCTION: usize = 1 << 16;
/// Functions of one name whose starts are found: each takes a debug register.
const MOST_STARTS: usize = 2;
/// The process is asked again for its mappings so often at most.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// A function's number in [`Functions`].
pub type Function = u32;

/// The names of functions, each once.
#[derive(Debug, Default)]
pub struct Functions {
    names: Vec<Rc<str>>,
    numbers: HashMap<Rc<str>, Function>,
}

impl Functions {
    /// The number of a name.
    pub fn intern(&mut self, name: &str) -> Function {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as Function;
        let name: Rc<str> = name.into();
        self.names.push(Rc::clone(&name));
        self.numbers.insert(name, number);
        number
    }

    /// The number of a name that is known already.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Function> {
        self.numbers.get(name).copied()
    }

    /// The name of a number.
    #[must_use]
    pub fn name(&self, function: Function) -> &str {
        self.names.get(function as usize).map_or("", |name| name)
    }
}

/// A running program.
#[derive(Debug)]
pub struct Program {
    pid: u32,
    memory: File,
    maps: Vec<Mapping>,
    asked: Instant,
    instructions: HashMap<u64, Instruction>,
    modules: Modules,
    unwinder: Unwinder,
    unwind_memory: Memory,
    functions: Functions,
    named: HashMap<u64, Rc<[Function]>>,
    /// By the first address of a function.
    outlines: HashMap<u64, Option<Rc<Outline>>>,
}

impl Program {
    /// Opens a process.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn open(pid: u32) -> io::Result<Self> {
        let mut program = Self {
            pid,
            memory: File::open(format!("/proc/{pid}/mem"))?,
            maps: Vec::new(),
            asked: Instant::now(),
            instructions: HashMap::new(),
            modules: Modules::default(),
            unwinder: Unwinder::default(),
            unwind_memory: Memory::default(),
            functions: Functions::default(),
            named: HashMap::new(),
            outlines: HashMap::new(),
        };
        program.read_maps()?;
        Ok(program)
    }

    fn read_maps(&mut self) -> io::Result<()> {
        self.asked = Instant::now();
        self.maps = maps::read(self.pid)?;
        self.unwinder = self.modules.adopt(self.pid, &self.maps);
        self.instructions.clear();
        self.named.clear();
        self.outlines.clear();
        Ok(())
    }

    /// The mapping at an address. Reads the mappings again if there is none.
    fn mapping(&mut self, address: u64) -> Option<&Mapping> {
        if self.place(address).is_none() && self.asked.elapsed() >= ASK_AGAIN {
            self.read_maps().ok()?;
        }
        let place = self.place(address)?;
        self.maps.get(place)
    }

    fn place(&self, address: u64) -> Option<usize> {
        place(&self.maps, address)
    }

    /// The names of functions.
    #[must_use]
    pub fn functions(&self) -> &Functions {
        &self.functions
    }

    /// The functions at a code address: the innermost inlined one first, and last the one that has
    /// the code. Empty if no file names it.
    pub fn functions_at(&mut self, ip: u64) -> Rc<[Function]> {
        if let Some(known) = self.named.get(&ip) {
            return Rc::clone(known);
        }
        let found: Vec<Function> = match self.mapping(ip).cloned() {
            Some(mapping) => {
                let names = self.modules.functions(&mapping, ip);
                let all = names.iter();
                all.map(|name| self.functions.intern(name)).collect()
            }
            None => Vec::new(),
        };
        if self.named.len() >= MOST_NAMED {
            self.named.clear();
        }
        let found: Rc<[Function]> = found.into();
        self.named.insert(ip, Rc::clone(&found));
        found
    }

    /// What stands for the function of code that has no name: its file, or `[unknown]`.
    pub fn unnamed(&mut self, ip: u64) -> Function {
        let mapping = self.mapping(ip);
        let path = mapping.map_or("[unknown]", |mapping| mapping.path.as_str());
        let name = match path.rsplit('/').next() {
            Some("") | None => "[anonymous]".to_owned(),
            Some(name) if name.starts_with('[') => name.to_owned(),
            Some(name) => format!("[{name}]"),
        };
        self.functions.intern(&name)
    }

    /// Addresses in the functions that a thread is in, the innermost first.
    pub fn callers(&mut self, registers: &Registers, stack: StackCopy<'_>) -> Vec<u64> {
        let _ = self.mapping(registers.ip);
        let thread = Thread {
            ip: registers.ip,
            sp: registers.general[4],
            fp: registers.general[5],
            lr: 0,
            from: stack.from,
            stack: stack.bytes,
        };
        let maps = &self.maps;
        let is_code = |address| place(maps, address).is_some_and(|place| maps[place].code);
        let chain = self
            .unwinder
            .chain(&mut self.unwind_memory, thread, is_code);
        chain.addresses
    }

    /// What is at a data address, in words: a variable with the offset in it, or the mapping.
    pub fn describe(&mut self, address: u64) -> String {
        let _ = self.mapping(address);
        if let Some(variable) = self.modules.variable(address) {
            return variable;
        }
        let Some(place) = self.place(address) else {
            return "unmapped".to_owned();
        };
        let mapping = &self.maps[place];
        let within = address - mapping.start;
        match mapping.path.as_str() {
            "" => format!("anonymous memory at {:#x}+{within:#x}", mapping.start),
            path if mapping.has_path() => {
                let name = path.rsplit('/').next().unwrap_or(path);
                format!("{name}+{:#x}", within + mapping.offset)
            }
            path => format!("{path}+{within:#x}"),
        }
    }

    /// Whether a function of this name is in a file that the process has mapped now; if not, names
    /// like it.
    ///
    /// # Errors
    /// There is no such function: the nearest names.
    pub fn look_up(&mut self, name: &str) -> Result<(), Vec<String>> {
        self.modules.look_up(name)
    }

    /// The first addresses of the functions of this name, [`MOST_STARTS`] at most. Parts that the
    /// compiler moved away (`NAME.cold`) are none.
    pub fn starts(&mut self, name: &str) -> Vec<u64> {
        self.modules.starts(name, MOST_STARTS)
    }

    /// The instruction that the thread executed before it came to `ip`; `None` if there may be
    /// several.
    pub fn previous(&mut self, ip: u64) -> Option<Instruction> {
        let before = self.outline_at(ip)?.before(ip)?;
        let next = walk::Program::instruction(self, ip)?;
        if walk::repeats(&next) {
            return None; // it may have been under way
        }
        walk::Program::instruction(self, before)
    }

    /// The function that has the code at an address, of a file that is not written to.
    fn outline_at(&mut self, ip: u64) -> Option<Rc<Outline>> {
        let mapping = self.mapping(ip).filter(|m| m.has_path() && !m.writable)?;
        let mapping = mapping.clone();
        let body = self.modules.body(&mapping, ip)?;
        let start = body.first()?.start;
        if self.outlines.len() >= MOST_OUTLINES {
            self.outlines.clear();
        }
        match self.outlines.get(&start) {
            Some(known) => known.clone(),
            None => {
                let read = self.outline(&body).map(Rc::new);
                self.outlines.insert(start, read.clone());
                read
            }
        }
    }

    fn outline(&self, body: &[Range<u64>]) -> Option<Outline> {
        let read = |part: &Range<u64>| {
            let length = usize::try_from(part.end.checked_sub(part.start)?).ok()?;
            let mut code = vec![0; (length <= LONGEST_FUNCTION).then_some(length)?];
            self.memory.read_exact_at(&mut code, part.start).ok()?;
            Some((part.start, code))
        };
        Outline::of(&body.iter().map(read).collect::<Option<Vec<_>>>()?)
    }

    fn bytes(&self, address: u64) -> Option<([u8; LONGEST], usize)> {
        let mut bytes = [0; LONGEST];
        let read = self.memory.read_at(&mut bytes, address).ok()?;
        Some((bytes, read))
    }
}

/// Which of the mappings, which are in the order of their addresses, has an address.
fn place(maps: &[Mapping], address: u64) -> Option<usize> {
    let behind = maps.partition_point(|m| m.start <= address);
    let place = behind.checked_sub(1)?;
    (address < maps[place].end).then_some(place)
}

impl walk::Program for Program {
    fn instruction(&mut self, address: u64) -> Option<Instruction> {
        if let Some(known) = self.instructions.get(&address) {
            return Some(*known);
        }
        let mapping = self.mapping(address).filter(|m| m.code)?;
        let is_fixed = mapping.has_path() && !mapping.writable;
        let (bytes, read) = self.bytes(address)?;
        let mut decoder = Decoder::with_ip(64, &bytes[..read], address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            return None;
        }
        if is_fixed {
            if self.instructions.len() >= MOST_INSTRUCTIONS {
                self.instructions.clear();
            }
            self.instructions.insert(address, instruction);
        }
        Some(instruction)
    }

    fn constant(&mut self, address: u64, size: usize) -> Option<u64> {
        let end = address.checked_add(size as u64)?;
        let place = self.place(address)?;
        let mapping = &self.maps[place];
        if mapping.writable || mapping.shared || end > mapping.end {
            return None;
        }
        let mut word = [0; 8];
        let bytes = word.get_mut(..size)?;
        self.memory.read_exact_at(bytes, address).ok()?;
        Some(u64::from_le_bytes(word))
    }
}
