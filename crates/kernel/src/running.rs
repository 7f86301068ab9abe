//! Who runs on each CPU: a channel that an observer maps.

use std::os::fd::AsFd;

use libbpf_rs::{Link, Object};

use crate::load_error::{LoadError, kernel};
use crate::object::map_of;
use crate::open::open;
use crate::shared;

static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/running.bpf.o"));

/// The program that keeps the channel, as long as this lives.
#[derive(Debug)]
pub struct Running {
    // First: dropped in this order, the program stops before its map goes.
    _link: Link,
    object: Object,
}

/// Who runs on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thread {
    /// The process; 0: nobody, the CPU is idle.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

impl Thread {
    /// Whether our PID namespace does not show it. All such threads have the same number.
    #[must_use]
    pub fn is_outside(self) -> bool {
        crate::timeline::is_outside(self.pid)
    }
}

impl Running {
    /// Bytes from one CPU's word to the next one's.
    pub const STRIDE: usize = 64;
    /// How many CPUs have a word.
    pub const CPUS: usize = shared::MAX_CPUS as usize;

    /// Loads the program and attaches it.
    pub fn load() -> Result<Self, LoadError> {
        let object = open(PROGRAM)?
            .object
            .load()
            .map_err(kernel("load the program"))?;
        let link = object
            .progs_mut()
            .next()
            .unwrap_or_else(|| unreachable!("see src/bpf/running.bpf.c"))
            .attach()
            .map_err(kernel("attach the program to switches"))?;
        Ok(Self {
            _link: link,
            object,
        })
    }

    /// The map to be mapped: at [`Running::STRIDE`] times a CPU's number is its word.
    #[must_use]
    pub fn map(&self) -> impl AsFd + '_ {
        map_of(&self.object, ".bss.running")
    }

    #[cfg(test)]
    pub(crate) fn object(&self) -> &Object {
        &self.object
    }

    /// What a word says; `None`: no switch was seen on that CPU yet.
    #[must_use]
    pub fn thread(word: u64) -> Option<Thread> {
        // As the header has it, the number is beyond what C's signed ones hold.
        const SEEN: u64 = shared::RUNNING_SEEN as u64;
        (word & SEEN != 0).then_some(Thread {
            pid: ((word & !SEEN) >> 32) as u32,
            tid: word as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_says_who_runs() {
        let word = 1 << 63 | 4711 << 32 | 4712;
        let thread = Thread {
            pid: 4711,
            tid: 4712,
        };
        assert_eq!(Running::thread(word), Some(thread));
        assert_eq!(Running::thread(0), None);
    }

    #[test]
    fn the_program_sees_switches_here() {
        let running = match Running::load() {
            Ok(running) => running,
            Err(LoadError::Privilege(missing)) => {
                println!("skipped: {missing:?}");
                return;
            }
            Err(e) => panic!("{e}"),
        };
        let len = Running::CPUS * Running::STRIDE;
        let view = tailscope_signals::view::View::map(running.map(), 0, len).expect("mapped");
        let seen = || {
            // Each sleep is a switch of some CPU to somebody.
            std::thread::sleep(std::time::Duration::from_millis(1));
            let words = (0..Running::CPUS).filter_map(|cpu| view.word(cpu * Running::STRIDE, 8));
            words
                .filter_map(|word| Running::thread(word.load()))
                .count()
                > 0
        };
        assert!((0..1000).any(|_| seen()));
    }
}
