//! The region that one SDK process shares with the recorder: its names, and chunks of rows.
//!
//! A thread owns the chunk that it writes and publishes how much of it is whole; the recorder
//! reads up to there, and frees a chunk when its writer has left it. What the process writes is
//! foreign: a wrong length loses rows, and is counted, and does nothing else.
//!
//! A region has 2,048 chunks of 4 KiB. Times in its rows are in cycles.

use std::cell::RefCell;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use tailscope_signals::abi;
use tailscope_signals::clock::Cycles;
use tailscope_signals::mapping::Mapping;
use tailscope_signals::meters::Meters;
use tailscope_signals::retention::{Kept, Retention};
use tailscope_signals::row::Row;

const CHUNK: usize = abi::TS_CHUNK_BYTES as usize;
const CHUNKS: usize = abi::TS_CHUNKS as usize;
const ROWS_AT: usize = offset_of!(abi::ts_chunk, rows);
const ROWS_LEN: usize = CHUNK - ROWS_AT;
const OWNED: u32 = abi::TS_CHUNK_OWNED;
const FULL: u32 = abi::TS_CHUNK_FULL;
const FREE: u32 = abi::TS_CHUNK_FREE;

/// The recorder's side of one process's region.
#[derive(Debug)]
pub struct Region {
    memory: Mapping,
    file: OwnedFd,
    /// For each chunk, how many bytes have been read.
    read: Vec<u32>,
    malformed: u64,
    /// A bit for each code of a probability: whether rows were ever to be kept with that here. A row
    /// that says another was not drawn, and would count for as many as it likes.
    handed_out: RefCell<Vec<u64>>,
}

/// What the region lost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RegionLoss {
    /// Rows for which the process found no free chunk.
    pub full: u64,
    /// Chunks whose rest made no sense, and rows with a probability that nobody handed out.
    pub malformed: u64,
}

impl Region {
    /// Makes a region in which spans are metered with probability `sample`, of 2^32, and rows of
    /// all names kept as told.
    pub fn create(sample: u64, retention: Retention) -> io::Result<Self> {
        let len = abi::TS_REGION_HEAD as usize + CHUNKS * CHUNK;
        let file = memfd_create("tailscope", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        // The process must not be able to shrink it under the recorder: that would be a SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Mapping::new(&file, len)?;
        let region = Self {
            memory,
            file,
            read: vec![0; CHUNKS],
            malformed: 0,
            handed_out: RefCell::new(vec![0; (1 << 16) / 64]),
        };
        region.hand_out(Kept::ALWAYS);
        region
            .memory
            .u32(offset_of!(abi::ts_region, abi))
            .store(abi::TS_ABI, Relaxed);
        region.word(offset_of!(abi::ts_region, sample), sample);
        (0..=u8::MAX).for_each(|number| region.keep(number, retention));
        region.word(offset_of!(abi::ts_region, magic), abi::TS_MAGIC);
        Ok(region)
    }

    fn word(&self, offset: usize, value: u64) {
        self.memory.u64(offset).store(value, Release);
    }

    /// From now on keeps of the spans with this number what is told; times in cycles.
    pub fn keep(&self, number: u8, retention: Retention) {
        let at = offset_of!(abi::ts_region, retention)
            + usize::from(number) * size_of::<abi::ts_retention>();
        let words = abi::ts_retention::from(retention);
        self.hand_out(retention.others); // first: the process may draw with it at once
        self.word(
            at + offset_of!(abi::ts_retention, always_from),
            words.always_from,
        );
        self.word(at + offset_of!(abi::ts_retention, others), words.others);
    }

    fn hand_out(&self, kept: Kept) {
        let code = usize::from(kept.code());
        self.handed_out.borrow_mut()[code / 64] |= 1 << (code % 64);
    }

    /// From now on has the process's threads count these events, which rows then call by `group`.
    /// No events: they count nothing.
    pub fn count(&mut self, group: u16, events: &[abi::ts_event]) {
        let turn = self.memory.u32(offset_of!(abi::ts_region, turn));
        let next = (turn.load(Relaxed) & !1).wrapping_add(2).max(2);
        turn.store(next | 1, Relaxed);
        fence(Release); // odd before anything of the rest
        let events = &events[..events.len().min(abi::TS_COUNTERS as usize)];
        let field = |offset| offset_of!(abi::ts_region, counting) + offset;
        let half = |offset, value| self.memory.u32(field(offset)).store(value, Relaxed);
        half(offset_of!(abi::ts_counting, group), group.into());
        half(offset_of!(abi::ts_counting, count), events.len() as u32);
        for (place, event) in events.iter().enumerate() {
            let at = offset_of!(abi::ts_counting, event) + place * size_of::<abi::ts_event>();
            half(at + offset_of!(abi::ts_event, type_), event.type_);
            for (offset, value) in [
                (offset_of!(abi::ts_event, config), event.config),
                (offset_of!(abi::ts_event, config1), event.config1),
                (offset_of!(abi::ts_event, config2), event.config2),
            ] {
                self.memory.u64(field(at + offset)).store(value, Relaxed);
            }
        }
        turn.store(if events.is_empty() { 0 } else { next }, Release);
    }

    /// Why a thread of the process could not count, since somebody asked.
    #[must_use]
    pub fn refusal(&self) -> Option<io::Error> {
        let at = offset_of!(abi::ts_region, counting) + offset_of!(abi::ts_counting, refused);
        match self.memory.u32(at).swap(0, Relaxed) {
            0 => None,
            number => Some(io::Error::from_raw_os_error(number as i32)),
        }
    }

    /// Says that the recorder is here; after `overdue` cycles without this the process asks.
    pub fn beat(&self, now: Cycles, overdue: u64) {
        self.word(offset_of!(abi::ts_region, heartbeat_overdue), overdue);
        self.word(offset_of!(abi::ts_region, heartbeat), now.0);
    }

    /// What was lost here so far.
    #[must_use]
    pub fn loss(&self) -> RegionLoss {
        RegionLoss {
            full: self
                .memory
                .u64(offset_of!(abi::ts_region, lost))
                .load(Relaxed),
            malformed: self.malformed,
        }
    }

    /// Reads what is new, and frees the chunks whose writers have left them. `meters` tells which
    /// threads still live. Each row comes with the names that its number is one of.
    pub fn drain(&mut self, meters: &Meters, mut each: impl FnMut(Names<'_>, Row)) {
        let mut bytes = [0u8; ROWS_LEN];
        let states_at = offset_of!(abi::ts_region, chunk_state);
        // Nearly all are free: a copy shows that in a fraction of the time.
        let mut states = [0u8; CHUNKS * 4];
        self.memory.copy(states_at, &mut states);
        for chunk in taken(&states) {
            let state_at = states_at + chunk * 4;
            let state = self.memory.u32(state_at).load(Acquire);
            let base = abi::TS_REGION_HEAD as usize + chunk * CHUNK;
            let tid = self
                .memory
                .u32(base + offset_of!(abi::ts_chunk, tid))
                .load(Relaxed);
            let slot = (state >> 8) % Meters::SLOTS;
            // Asked before `used` is read: a writer that is gone by now writes no more.
            let has_ended = || meters.kernel_tid(slot).is_ok_and(|now| now != tid);
            let left = state & 0xff != OWNED || (tid != 0 && has_ended());
            let used = self
                .memory
                .u32(base + offset_of!(abi::ts_chunk, used))
                .load(Acquire);
            let used = (used as usize).min(ROWS_LEN);
            let from = (self.read[chunk] as usize).min(used);
            let fresh = &mut bytes[..used - from];
            self.memory.copy(base + ROWS_AT + from, fresh);
            let mut at = 0;
            while at < fresh.len() {
                match Row::parse(&fresh[at..]) {
                    Ok((mut row, len)) => {
                        at += len;
                        let code = usize::from(row.kept.code());
                        if self.handed_out.get_mut()[code / 64] & 1 << (code % 64) == 0 {
                            self.malformed += 1;
                            continue;
                        }
                        row.tid = tid;
                        each(Names(&self.memory), row);
                    }
                    Err(_) => {
                        self.malformed += 1;
                        break;
                    }
                }
            }
            self.read[chunk] = used as u32;
            if left {
                self.free(chunk, base, state_at);
            }
        }
    }

    fn free(&mut self, chunk: usize, base: usize, state_at: usize) {
        self.read[chunk] = 0;
        self.memory
            .u32(base + offset_of!(abi::ts_chunk, used))
            .store(0, Relaxed);
        self.memory
            .u32(base + offset_of!(abi::ts_chunk, tid))
            .store(0, Relaxed);
        self.memory.u32(state_at).store(FREE, Release);
    }
}

/// The chunks that are not free, by the words of their states. Nearly all are: one comparison shows it of
/// many.
fn taken(states: &[u8]) -> impl Iterator<Item = usize> {
    const TOGETHER: usize = 16;
    const _: () = assert!(FREE == 0 && CHUNKS.is_multiple_of(TOGETHER));
    let some_taken = |(_, many): &(usize, &[u8])| *many != [0; TOGETHER * 4];
    let many = states.chunks_exact(TOGETHER * 4).enumerate();
    many.filter(some_taken).flat_map(|(place, many)| {
        let each = many.chunks_exact(4).enumerate();
        let taken = each.filter(|(_, state)| *state != FREE.to_ne_bytes());
        taken.map(move |(chunk, _)| place * TOGETHER + chunk)
    })
}

/// The names of spans in a region.
#[derive(Debug, Clone, Copy)]
pub struct Names<'r>(&'r Mapping);

impl Names<'_> {
    /// The name behind a row's number; `None` if the process had no room for it.
    #[must_use]
    pub fn get(&self, number: u8) -> Option<String> {
        if u32::from(number) >= abi::TS_NAMES {
            return None;
        }
        let at =
            offset_of!(abi::ts_region, names) + usize::from(number) * size_of::<abi::ts_name>();
        let len = self
            .0
            .u32(at + offset_of!(abi::ts_name, length))
            .load(Acquire) as usize;
        let mut text = vec![0; len.min(abi::TS_NAME_BYTES as usize - 4)];
        self.0.copy(at + offset_of!(abi::ts_name, text), &mut text);
        (len > 0).then(|| String::from_utf8_lossy(&text).into_owned())
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const _: () = assert!(FULL != OWNED && size_of::<abi::ts_region>() <= abi::TS_REGION_HEAD as usize);

#[cfg(fuzzing)]
impl Region {
    /// Writes as a process may: `words` are places and values, everywhere in the region.
    pub fn scribble(&self, words: impl Iterator<Item = (u32, u32)>) {
        let words_there = (abi::TS_REGION_HEAD as usize + CHUNKS * CHUNK) / 4;
        for (place, value) in words {
            let at = place as usize % words_there * 4;
            self.memory.u32(at).store(value, Relaxed);
        }
    }

    /// Writes rows into the first chunk, as a thread that has left it.
    pub fn leave(&self, rows: &[u8]) {
        let base = abi::TS_REGION_HEAD as usize;
        let rows = &rows[..rows.len().min(ROWS_LEN)];
        for (number, word) in rows.chunks_exact(4).enumerate() {
            let value = u32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            let at = base + ROWS_AT + number * 4;
            self.memory.u32(at).store(value, Relaxed);
        }
        let used = self.memory.u32(base + offset_of!(abi::ts_chunk, used));
        used.store(rows.len() as u32, Relaxed);
        let state = self.memory.u32(offset_of!(abi::ts_region, chunk_state));
        state.store(FULL, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tailscope_signals::abi::ts_row;

    /// Writes a row as a process can, into a chunk that no thread has.
    fn forge(region: &Region, kept: Kept) {
        let base = abi::TS_REGION_HEAD as usize;
        let at = base + ROWS_AT;
        for word in (at..at + size_of::<ts_row>()).step_by(4) {
            region.memory.u32(word).store(0, Relaxed);
        }
        let word = at + offset_of!(ts_row, kept) / 4 * 4;
        let shift = (offset_of!(ts_row, kept) % 4) * 8;
        region
            .memory
            .u32(word)
            .store(u32::from(kept.code()) << shift, Relaxed);
        let used = region.memory.u32(base + offset_of!(abi::ts_chunk, used));
        used.store(size_of::<ts_row>() as u32, Relaxed);
        let state = region.memory.u32(offset_of!(abi::ts_region, chunk_state));
        state.store(FULL, Release);
    }

    #[test]
    fn rows_are_taken_only_with_probabilities_that_were_handed_out() {
        let few = Kept::nearest(0.01);
        let retention = Retention {
            always_from: None,
            others: few,
        };
        let mut region = Region::create(1 << 32, retention).expect("memory");
        let file = memfd_create("meters", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(
            &file,
            u64::from(abi::TS_METERS) * size_of::<abi::ts_meter>() as u64,
        )
        .expect("longer");
        let meters = Meters::map(&file).expect("mapped");
        let mut taken = Vec::new();
        for kept in [few, Kept::ALWAYS, Kept::from_code(1), Kept::nearest(0.02)] {
            forge(&region, kept);
            region.drain(&meters, |_, row| taken.push(row.kept));
        }
        assert_eq!(taken, [few, Kept::ALWAYS]);
        assert_eq!(region.loss().malformed, 2);
        region.keep(
            7,
            Retention {
                others: Kept::nearest(0.02),
                ..retention
            },
        );
        forge(&region, Kept::nearest(0.02));
        region.drain(&meters, |_, row| taken.push(row.kept));
        assert_eq!(taken.len(), 3);
    }
}
