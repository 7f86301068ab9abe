//! What samples say about a program: which lines of memory its threads and phases access, and how.
//!
//! A *line* is 64 bytes. A *session* is a thread. A *phase* is a function with all that it calls; all
//! other code is the rest. The words are those of Accessprof (Curto, 2023).
//!
//! Each sample stands for the same CPU time, so each has the weight 1, shared equally by the accesses
//! that follow from it. Shares are therefore shares of CPU time near an access: slow accesses count
//! more. Update ratios are ratios of plain counts.

pub mod demand;
pub mod groups;
pub mod hot;
pub mod interval;
pub mod mixture;
pub mod unseen;

use std::collections::HashMap;

use crate::program::Function;
use crate::walk::{Access, Kind};

/// Bytes of a line.
pub const LINE: u64 = 64;
/// Accesses that are kept: 64 MB. Later ones are counted only.
const MOST_TOUCHES: usize = 2 << 20;
/// Lines that are kept.
const MOST_LINES: usize = 1 << 20;

/// A thread's number in [`Profile::threads`].
pub type Thread = u16;

/// An access of a sample, at one of its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// The sample's number.
    pub sample: u32,
    /// The line's number in [`Profile::lines`].
    pub line: u32,
    /// The instruction.
    pub ip: u64,
    /// Its function.
    pub function: Function,
    /// The first byte in the line.
    pub offset: u8,
    /// The number of bytes in the line.
    pub size: u8,
    /// The number of the access's bytes before those: it began in the line before.
    pub before: u16,
    /// What it does.
    pub kind: Kind,
    /// It belongs to the phase.
    pub in_phase: bool,
    /// It came right before the sample, which makes slow accesses more frequent.
    pub is_before: bool,
}

impl Touch {
    /// Loads: an update has one.
    #[must_use]
    pub fn reads(&self) -> u64 {
        u64::from(self.kind != Kind::Write)
    }

    /// Stores: an update has one.
    #[must_use]
    pub fn writes(&self) -> u64 {
        u64::from(self.kind != Kind::Read)
    }

    /// The bytes of the line that it touches, one bit each.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let size = u32::from(self.size).clamp(1, 64);
        (u64::MAX >> (64 - size)) << self.offset
    }
}

/// A sample in user space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The thread.
    pub thread: Thread,
    /// The function that the thread was in.
    pub function: Function,
    /// The phase was among its callers, or was that function.
    pub in_phase: bool,
    /// The number of its touches.
    pub touches: u32,
    /// Whether the instruction before it, for which the thread may have waited, accesses memory;
    /// `None`: it is not known.
    pub from_access: Option<bool>,
}

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadName {
    /// Its id.
    pub tid: u32,
    /// Its name, as the kernel has it.
    pub name: String,
}

/// What a watched word showed, by line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watched {
    /// How often a word of the line was watched.
    pub times: u32,
    /// How often several threads touched the word during that time.
    pub by_several: u32,
    /// How often several threads touched it, and one of them wrote.
    pub shared: u32,
    /// How often nobody touched it.
    pub by_none: u32,
}

/// All samples.
#[derive(Debug, Default)]
pub struct Profile {
    /// In the order of time.
    pub samples: Vec<Sample>,
    /// In the order of their samples.
    pub touches: Vec<Touch>,
    /// The address of each line.
    pub lines: Vec<u64>,
    numbers: HashMap<u64, u32>,
    /// All threads that had a sample.
    pub threads: Vec<ThreadName>,
    /// By line number.
    pub watched: HashMap<u32, Watched>,
    /// Accesses that found no room.
    pub dropped: u64,
}

impl Profile {
    /// Starts a sample; [`Self::touch`] adds its accesses.
    pub fn begin(&mut self, thread: Thread, function: Function, in_phase: bool) {
        self.samples.push(Sample {
            thread,
            function,
            in_phase,
            touches: 0,
            from_access: None,
        });
    }

    /// Says of the last sample whether the instruction before it accesses memory.
    pub fn came_from(&mut self, accesses_memory: bool) {
        if let Some(sample) = self.samples.last_mut() {
            sample.from_access = Some(accesses_memory);
        }
    }

    /// Adds an access to the sample that was started last.
    pub fn touch(&mut self, access: &Access, function: Function, in_phase: bool) {
        self.touch_when(access, function, in_phase, false);
    }

    /// Adds the access right before the sample that was started last.
    pub fn touch_before(&mut self, access: &Access, function: Function, in_phase: bool) {
        self.touch_when(access, function, in_phase, true);
    }

    fn touch_when(&mut self, access: &Access, function: Function, in_phase: bool, is_before: bool) {
        let last = access
            .address
            .saturating_add(u64::from(access.size.max(1)) - 1);
        let lines = access.address / LINE..=last / LINE;
        // Instructions that save all registers touch a few lines. No other touches more than two.
        for line in lines.take(64) {
            let from = access.address.max(line * LINE);
            let to = last.min(line * LINE + (LINE - 1));
            self.add(line * LINE, |sample, line| Touch {
                sample,
                line,
                ip: access.ip,
                function,
                offset: (from % LINE) as u8,
                size: (to - from + 1) as u8,
                before: u16::try_from(from - access.address).unwrap_or(u16::MAX),
                kind: access.kind,
                in_phase,
                is_before,
            });
        }
    }

    fn add(&mut self, address: u64, touch: impl FnOnce(u32, u32) -> Touch) {
        let Some(sample) = self.samples.len().checked_sub(1) else {
            return;
        };
        let line = self.number(address);
        let Some(line) = line.filter(|_| self.touches.len() < MOST_TOUCHES) else {
            self.dropped += 1;
            return;
        };
        self.samples[sample].touches += 1;
        self.touches.push(touch(sample as u32, line));
    }

    fn number(&mut self, address: u64) -> Option<u32> {
        if let Some(number) = self.numbers.get(&address) {
            return Some(*number);
        }
        if self.lines.len() >= MOST_LINES {
            return None;
        }
        let number = self.lines.len() as u32;
        self.lines.push(address);
        self.numbers.insert(address, number);
        Some(number)
    }

    /// Adds what a watched word showed.
    pub fn watched(&mut self, address: u64, seen: Watched) {
        let Some(line) = self.number(address / LINE * LINE) else {
            return;
        };
        let all = self.watched.entry(line).or_default();
        all.times += seen.times;
        all.by_several += seen.by_several;
        all.shared += seen.shared;
        all.by_none += seen.by_none;
    }

    /// The part of its sample's weight that a touch has.
    #[must_use]
    pub fn weight(&self, touch: &Touch) -> f64 {
        1.0 / f64::from(self.samples[touch.sample as usize].touches.max(1))
    }

    /// By line: whether an access after a sample was seen. Only where there is none do accesses
    /// before samples count for the update ratio.
    #[must_use]
    pub fn is_after_by_line(&self) -> Vec<bool> {
        let mut is_after = vec![false; self.lines.len()];
        for touch in self.touches.iter().filter(|touch| !touch.is_before) {
            is_after[touch.line as usize] = true;
        }
        is_after
    }

    /// Samples from which at least one access followed.
    #[must_use]
    pub fn resolved(&self) -> usize {
        self.samples.iter().filter(|s| s.touches > 0).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(address: u64, size: u32, kind: Kind) -> Access {
        Access {
            ip: 0,
            address,
            size,
            kind,
            step: 0,
        }
    }

    #[test]
    fn an_access_over_two_lines_touches_both_and_shares_the_weight() {
        let mut profile = Profile::default();
        profile.begin(0, 0, false);
        profile.touch(&access(0x103c, 8, Kind::Update), 0, true);
        let touches = &profile.touches;
        assert_eq!((touches[0].offset, touches[0].size), (60, 4));
        assert_eq!((touches[1].offset, touches[1].size), (0, 4));
        assert_eq!(profile.lines, [0x1000, 0x1040]);
        assert_eq!(touches[0].bytes(), 0xf << 60);
        assert_eq!((touches[0].reads(), touches[0].writes()), (1, 1));
        assert!((profile.weight(&touches[0]) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn the_last_line_of_all_addresses_is_no_overflow() {
        let mut profile = Profile::default();
        profile.touch(&access(0, 8, Kind::Read), 0, false);
        assert!(profile.touches.is_empty(), "there is no sample yet");
        profile.begin(0, 0, false);
        profile.touch(&access(u64::MAX - 3, 64, Kind::Read), 0, false);
        assert_eq!(profile.lines, [u64::MAX - 63]);
        assert_eq!(profile.touches[0].size, 4);
    }
}
