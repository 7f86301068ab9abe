//! The ring into which the kernel writes the records of events.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use perf_event_open_sys::bindings as b;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

const PAGE: usize = 4096;
/// The length of a record's head.
const HEAD: u64 = 8;

/// A record (`struct perf_event_header` and what follows it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record<'r> {
    /// `PERF_RECORD_…`.
    pub(crate) kind: u32,
    /// `PERF_RECORD_MISC_…`.
    pub(crate) misc: u16,
    /// What follows the head. Records are whole words.
    pub(crate) words: &'r [u64],
}

impl Record<'_> {
    /// A word; 0 behind the last one.
    pub(crate) fn word(&self, at: usize) -> u64 {
        self.words.get(at).copied().unwrap_or_default()
    }
}

/// The ring of one event, or of several of the same thread: a page about it, and the records.
#[derive(Debug)]
pub(crate) struct Ring {
    page: NonNull<b::perf_event_mmap_page>,
    pages: usize,
}

// SAFETY: the mapping is owned by this value alone, and is valid on all threads.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring of an event, with this many pages of records: a power of two.
    pub(crate) fn of(fd: &OwnedFd, pages: usize) -> io::Result<Self> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let length = (1 + pages) * PAGE;
        // SAFETY: a fresh mapping at an address of the kernel's choice aliases nothing of ours.
        let at = unsafe { mmap(ptr::null_mut(), length, rights, MapFlags::SHARED, fd, 0)? };
        let page = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at null"))?;
        Ok(Self { page, pages })
    }

    /// Takes all records out.
    pub(crate) fn drain(&self, each: impl FnMut(Record<'_>)) {
        let page = self.page.as_ptr();
        // SAFETY: words of the page, which is mapped for as long as `self` lives. The kernel writes
        // the first, and we alone the second.
        let (head, tail) = unsafe {
            (
                AtomicU64::from_ptr(&raw mut (*page).data_head),
                AtomicU64::from_ptr(&raw mut (*page).data_tail),
            )
        };
        let end = head.load(Acquire);
        parse(tail.load(Relaxed), end, |at| self.word(at), each);
        tail.store(end, Release);
    }

    /// Eight bytes of the records; a record never has fewer, nor begins elsewhere than at eight.
    fn word(&self, at: u64) -> u64 {
        let at = (at as usize % (self.pages * PAGE)) & !7;
        // SAFETY: inside the mapping, and aligned; the kernel no longer writes what lies before the
        // head that was read.
        unsafe {
            self.page
                .as_ptr()
                .cast::<u8>()
                .add(PAGE + at)
                .cast::<u64>()
                .read_volatile()
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let length = (1 + self.pages) * PAGE;
        // SAFETY: mapped by `of` with this length; no reference outlives `self`.
        // Unmapping can only fail for arguments that were never mapped.
        let _ = unsafe { munmap(self.page.as_ptr().cast(), length) };
    }
}

/// The records from `tail` to `end`. `word`: eight bytes at a place.
fn parse(mut tail: u64, end: u64, word: impl Fn(u64) -> u64, mut each: impl FnMut(Record<'_>)) {
    let mut words = Vec::new();
    while end > tail && end - tail >= HEAD {
        let head = word(tail);
        let size = (head >> 48).min(end - tail);
        if size < HEAD {
            break; // no record is shorter: what follows can't be found
        }
        words.clear();
        words.extend((1..size / 8).map(|n| word(tail + 8 * n)));
        each(Record {
            kind: head as u32,
            misc: (head >> 32) as u16,
            words: &words,
        });
        tail += size;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sampled::Drained;

    fn record(kind: u32, words: &[u64]) -> Vec<u64> {
        let size = HEAD + 8 * words.len() as u64;
        let mut record = vec![u64::from(kind) | size << 48];
        record.extend(words);
        record
    }

    fn read(words: &[u64]) -> Drained {
        let mut drained = Drained::default();
        let word = |at| words.get(at as usize / 8).copied().unwrap_or_default();
        parse(0, 8 * words.len() as u64, word, |r| drained.count(r));
        drained
    }

    #[test]
    fn samples_losses_and_throttling_are_told_apart() {
        let words = [
            record(b::PERF_RECORD_SAMPLE, &[1, 2, 3]),
            record(b::PERF_RECORD_LOST, &[7, 5]),
            record(b::PERF_RECORD_THROTTLE, &[1, 2, 3]),
            record(b::PERF_RECORD_COMM, &[9]),
            record(b::PERF_RECORD_SAMPLE, &[]),
        ]
        .concat();
        let wanted = Drained {
            samples: 2,
            lost: 5,
            throttled: 1,
        };
        assert_eq!(read(&words), wanted);
        assert_eq!(wanted.and(wanted).lost, 10);
    }

    proptest! {
        #[test]
        fn foreign_bytes_end(words in proptest::collection::vec(any::<u64>(), 0..64)) {
            let _ = read(&words);
        }
    }
}
