//! The words in memory, which the kernel's programs or a poller write.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::{Kind, WAIT_NS, abi};
use crate::clock::Monotonic;
use crate::mapping::Mapping;

const WORD: usize = size_of::<abi::ts_hazard>();
const _: () = assert!(WORD == 64);

/// The words of all replicas.
#[derive(Debug)]
pub struct Words {
    memory: Mapping,
    slots: u32,
}

impl Words {
    /// Words that only this process, or who gets its memory, writes to.
    pub fn in_memory(slots: u32) -> io::Result<Self> {
        let file = memfd_create("tailscope-hazards", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, u64::from(slots) * WORD as u64)?;
        Self::map(file, slots)
    }

    /// The words in a file or BPF map that holds this number of them.
    pub fn map(file: impl AsFd, slots: u32) -> io::Result<Self> {
        let memory = Mapping::new(file, slots as usize * WORD)?;
        Ok(Self { memory, slots })
    }

    /// How many there are.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// The word of a replica, by its number below [`slots`](Words::slots).
    #[must_use]
    pub fn word(&self, slot: u32) -> Word<'_> {
        assert!(slot < self.slots, "a replica's number");
        Word {
            memory: &self.memory,
            at: slot as usize * WORD,
        }
    }
}

/// One replica's word.
#[derive(Debug, Clone, Copy)]
pub struct Word<'w> {
    memory: &'w Mapping,
    at: usize,
}

impl Word<'_> {
    fn part(&self, offset: usize) -> &std::sync::atomic::AtomicU32 {
        self.memory.u32(self.at + offset)
    }

    fn since_of(&self, kind: Kind) -> &std::sync::atomic::AtomicU64 {
        let offset = std::mem::offset_of!(abi::ts_hazard, since);
        self.memory
            .u64(self.at + offset + kind.number() as usize * size_of::<u64>())
    }

    fn mask(&self) -> &std::sync::atomic::AtomicU32 {
        self.part(std::mem::offset_of!(abi::ts_hazard, mask))
    }

    /// What holds now.
    #[must_use]
    pub fn read(&self, now: Monotonic) -> Active {
        let mut mask = self.mask().load(Acquire);
        if mask != 0 {
            for kind in Kind::ALL {
                if let Some(expiry) = kind.expiry()
                    && mask & 1 << kind.number() != 0
                    && self.age(kind, now) > expiry
                {
                    mask &= !(1 << kind.number());
                }
            }
        }
        let waits_since = self.since_of(Kind::Runqueue).load(Relaxed);
        mask &= !(1 << Kind::Runqueue.number());
        if waits_since != 0 && now.0.saturating_sub(waits_since) >= WAIT_NS {
            mask |= 1 << Kind::Runqueue.number();
        }
        Active(mask & ((1 << abi::TS_HAZARD_KINDS) - 1))
    }

    /// Since when a hazard that holds does so.
    #[must_use]
    pub fn since(&self, kind: Kind) -> Monotonic {
        Monotonic(self.since_of(kind).load(Relaxed))
    }

    fn age(&self, kind: Kind, now: Monotonic) -> Duration {
        Duration::from_nanos(now.0.saturating_sub(self.since(kind).0))
    }

    /// Which life of the replica this is: grows with each restart.
    #[must_use]
    pub fn incarnation(&self) -> u32 {
        self.part(std::mem::offset_of!(abi::ts_hazard, incarnation))
            .load(Relaxed)
    }

    /// Takes over which life of the replica this is, from who watches it elsewhere.
    pub fn set_incarnation(&self, incarnation: u32) {
        self.part(std::mem::offset_of!(abi::ts_hazard, incarnation))
            .store(incarnation, Relaxed);
    }

    /// How many of its processes are watched.
    #[must_use]
    pub fn processes(&self) -> u32 {
        self.part(std::mem::offset_of!(abi::ts_hazard, processes))
            .load(Relaxed)
    }

    /// Sets a hazard, unless it is set. True: it was not.
    pub fn begin(&self, kind: Kind, at: Monotonic) -> bool {
        let bit = 1 << kind.number();
        if self.mask().load(Relaxed) & bit != 0 {
            return false;
        }
        self.since_of(kind).store(at.0, Relaxed);
        self.mask().fetch_or(bit, Release) & bit == 0
    }

    /// Clears a hazard. True: it was set.
    pub fn end(&self, kind: Kind) -> bool {
        let bit = 1 << kind.number();
        if kind == Kind::Runqueue {
            self.since_of(kind).store(0, Relaxed); // it holds by its time alone
        }
        self.mask().fetch_and(!bit, Release) & bit != 0
    }

    /// A process of it is watched from now on. With the first one, the replica begins anew.
    pub fn add_process(&self) {
        let processes = self.part(std::mem::offset_of!(abi::ts_hazard, processes));
        if processes.fetch_add(1, Relaxed) == 0 {
            self.mask().store(0, Relaxed);
            self.since_of(Kind::Runqueue).store(0, Relaxed);
            self.part(std::mem::offset_of!(abi::ts_hazard, incarnation))
                .fetch_add(1, Release);
        }
    }

    /// One that is not watched any more. True: it was the last.
    pub fn remove_process(&self) -> bool {
        let processes = self.part(std::mem::offset_of!(abi::ts_hazard, processes));
        processes.fetch_sub(1, Relaxed) == 1
    }
}

/// The hazards that hold at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Active(u32);

impl Active {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether this one holds.
    #[must_use]
    pub fn has(self, kind: Kind) -> bool {
        self.0 & 1 << kind.number() != 0
    }

    /// Each that holds.
    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.into_iter().filter(move |kind| self.has(*kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Monotonic = Monotonic(100_000_000_000);

    #[test]
    fn a_hazard_holds_from_its_begin_to_its_end() {
        let words = Words::in_memory(2).expect("memory");
        let word = words.word(1);
        assert!(word.read(NOW).is_empty());
        assert!(word.begin(Kind::Collection, NOW));
        assert!(!word.begin(Kind::Collection, Monotonic(NOW.0 + 1)));
        let active = word.read(NOW);
        assert_eq!(active.kinds().collect::<Vec<_>>(), [Kind::Collection]);
        assert_eq!(word.since(Kind::Collection), NOW);
        assert!(words.word(0).read(NOW).is_empty(), "another replica's");
        assert!(word.end(Kind::Collection));
        assert!(word.read(NOW).is_empty());
    }

    #[test]
    fn a_hazard_whose_end_was_missed_expires() {
        let words = Words::in_memory(1).expect("memory");
        let word = words.word(0);
        for kind in Kind::ALL {
            word.begin(kind, NOW);
            let Some(expiry) = kind.expiry() else {
                continue;
            };
            let then = NOW.0 + expiry.as_nanos() as u64;
            assert!(word.read(Monotonic(then)).has(kind));
            assert!(!word.read(Monotonic(then + 1)).has(kind));
        }
    }

    #[test]
    fn a_wait_for_a_cpu_becomes_a_hazard_with_time() {
        let words = Words::in_memory(1).expect("memory");
        let word = words.word(0);
        word.since_of(Kind::Runqueue).store(NOW.0, Relaxed);
        assert!(word.read(NOW).is_empty());
        let later = Monotonic(NOW.0 + WAIT_NS);
        assert!(word.read(later).has(Kind::Runqueue));
    }

    #[test]
    fn a_replica_that_starts_again_begins_without_hazards() {
        let words = Words::in_memory(1).expect("memory");
        let word = words.word(0);
        word.add_process();
        word.begin(Kind::Stopped, NOW);
        word.add_process();
        assert!(!word.read(NOW).is_empty());
        assert!(!word.remove_process());
        assert!(word.remove_process());
        let before = word.incarnation();
        word.add_process();
        assert!(word.read(NOW).is_empty());
        assert_eq!(word.incarnation(), before + 1);
    }
}
