//! A signal: where a value is in memory, and what it means.

use std::cell::Cell;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tailscope_counters::ThreadCounter;
use tailscope_kernel::{Running, Thread};
use tailscope_signals::clock::{self, After};
use tailscope_signals::remote::Remote;
use tailscope_signals::view::Word;

use crate::mapped::{Functions, Places, method};
use crate::process::Owner;

/// What a signal's value is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It only grows: its change over the change of the clock is a rate.
    Counter,
    /// It says what is being done: rates are told by it.
    Tag,
}

/// How it is read.
#[derive(Debug, Clone)]
pub enum Reader {
    /// By a load from memory that is mapped here.
    Load(Word),
    /// By a system call that copies from the other process.
    Copy(Remote),
    /// By a system call that asks for a hardware counter of a thread.
    Count(Arc<ThreadCounter>),
}

/// What a tag's values stand for.
#[derive(Debug, Clone)]
pub enum Names {
    /// Numbers.
    None,
    /// Threads, as `running:CPU` has them.
    Threads,
    /// Addresses in a process's code.
    Code(Arc<Functions>),
    /// Numbers in a process's table of methods and loops.
    Places(Arc<Places>),
}

impl Names {
    /// The name behind a value, if it has one: looked up now, so of a thread that still lives.
    #[must_use]
    pub fn of(&self, value: u64) -> Option<String> {
        match (self, Running::thread(value)) {
            (Self::None, _) => None,
            (Self::Code(functions), _) => {
                functions
                    .find(value)
                    .map(|(name, offset)| match functions.line(value) {
                        Some(line) => format!("{name}+{offset:#x} {line}"),
                        None => format!("{name}+{offset:#x}"),
                    })
            }
            (Self::Places(places), _) => places.find(value),
            (Self::Threads, None) => Some("not seen yet".into()),
            (Self::Threads, Some(Thread { tid: 0, .. })) => Some("idle".into()),
            (Self::Threads, Some(thread)) if thread.is_outside() => {
                Some("outside this PID namespace".into())
            }
            (Self::Threads, Some(Thread { pid, tid })) => {
                let comm = fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm"));
                let comm = comm.map_or_else(|_| "ended".into(), |text| text.trim().to_owned());
                Some(format!("{comm} {pid}/{tid}"))
            }
        }
    }
}

impl Names {
    /// What should be known before the names of these values are believed.
    pub(crate) fn notices(&self, values: impl Iterator<Item = u64>) -> Vec<String> {
        match self {
            Self::Code(functions) => functions.notices(values),
            Self::None | Self::Threads | Self::Places(_) => Vec::new(),
        }
    }

    /// Whether values are places in a program, each in some function.
    #[must_use]
    pub fn are_places(&self) -> bool {
        matches!(self, Self::Code(_) | Self::Places(_))
    }

    /// The function or method that a value lies in, if it is a place in a program.
    #[must_use]
    pub fn function(&self, value: u64) -> Option<String> {
        match self {
            Self::Code(functions) => functions.find(value).map(|(name, _)| name.to_owned()),
            Self::Places(places) => places.find(value).map(|place| method(&place).to_owned()),
            Self::None | Self::Threads => None,
        }
    }
}

/// A value that can be read again and again.
#[derive(Debug, Clone)]
pub struct Signal {
    /// As it was asked for.
    pub name: String,
    /// What its owner says that it is, where that is known.
    pub kind: Option<Role>,
    /// Whose it is; `None`: the kernel's.
    pub owner: Option<Arc<Owner>>,
    /// What its values stand for.
    pub names: Names,
    /// What is to be said of how it is read, for the report.
    pub how: String,
    pub(crate) reader: Reader,
}

impl Signal {
    /// The value now, where a load from memory gives it.
    #[must_use]
    pub fn load(&self) -> Option<u64> {
        match &self.reader {
            Reader::Load(word) => Some(word.load()),
            Reader::Copy(_) | Reader::Count(_) => None,
        }
    }

    /// All ones in as many bits as it has: changes are taken modulo this plus one.
    #[must_use]
    pub fn mask(&self) -> u64 {
        match &self.reader {
            Reader::Load(word) => word.mask(),
            Reader::Copy(remote) => remote.mask(),
            Reader::Count(_) => u64::MAX,
        }
    }
}

/// What the loop calls: compiled once for each kind.
pub trait Read {
    /// The value now.
    fn read(&self) -> u64;

    /// The value after a reading of the clock.
    fn read_after(&self, after: After) -> u64;

    /// Has it near, so that reading it right afterwards takes the same time whether it was written
    /// meanwhile or not; the value that came with it. `None`: that would change nothing.
    fn fetch(&self) -> Option<u64>;

    /// Asks for it to come near, and does not wait.
    fn ask(&self);
}

impl Read for Word {
    #[inline(always)]
    fn read(&self) -> u64 {
        self.load()
    }

    #[inline(always)]
    fn read_after(&self, after: After) -> u64 {
        self.load_after(after)
    }

    #[inline(always)]
    fn fetch(&self) -> Option<u64> {
        Some(std::hint::black_box(self.load()))
    }

    #[inline(always)]
    fn ask(&self) {
        Word::ask(self);
    }
}

/// Any reader, for loops in which not all signals are mapped here.
#[derive(Debug)]
pub struct Any {
    reader: Reader,
    last: Cell<u64>,
    failed: Arc<AtomicBool>,
}

impl Any {
    /// `failed` is set when a read fails: the process is gone, or others took the CPU's counters.
    /// From then on it stays as it was.
    #[must_use]
    pub fn new(reader: Reader, failed: Arc<AtomicBool>) -> Self {
        Self {
            reader,
            last: Cell::new(0),
            failed,
        }
    }
}

impl Read for Any {
    fn read(&self) -> u64 {
        let value = match &self.reader {
            Reader::Load(word) => return word.load(),
            Reader::Copy(remote) => remote.read().ok(),
            Reader::Count(counter) => counter.read().ok(),
        };
        match value {
            Some(value) => {
                self.last.set(value);
                value
            }
            None => {
                self.failed.store(true, Relaxed);
                self.last.get()
            }
        }
    }

    fn read_after(&self, after: After) -> u64 {
        if let Reader::Load(word) = &self.reader {
            return word.load_after(after);
        }
        clock::settle();
        self.read()
    }

    fn fetch(&self) -> Option<u64> {
        // A system call takes as long the second time.
        match &self.reader {
            Reader::Load(word) => word.fetch(),
            Reader::Copy(_) | Reader::Count(_) => None,
        }
    }

    fn ask(&self) {
        if let Reader::Load(word) = &self.reader {
            word.ask();
        }
    }
}
