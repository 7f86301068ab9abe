//! Hardware counters of a span.
//!
//! Each thread counts for itself, the group of events whose turn the recorder says it is, and reads
//! them in user space. Pages lie at a place that the thread's meter decides, so a thread that ends leaves nothing
//! that the next one there does not replace. What the kernel and interrupts execute is not counted, nor what runs
//! while the thread is switched out. What reading costs itself is measured when a thread begins to count, and
//! taken off.

use core::cell::Cell;
use core::ptr::null;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, compiler_fence};

use super::abi::{COUNTERS, Counts};
use super::perf::{Page, USER_TIME};

/// What is all of a span.
const WHOLE: u64 = 1 << 32;

/// What the counters of a thread were at some moment.
#[derive(Debug)]
pub(super) struct Counted {
    value: [Cell<u64>; COUNTERS],
    /// ns: for how long the group was wanted, until it was last put on the CPU.
    enabled: Cell<u64>,
    /// ns: for how long it was on it, likewise.
    running: Cell<u64>,
    /// What takes cycles to the ns since then.
    offset: Cell<u64>,
    /// Bit i: `value[i]` holds.
    known: Cell<u32>,
}

impl Counted {
    pub(super) const fn new() -> Self {
        Self {
            value: [const { Cell::new(0) }; COUNTERS],
            enabled: Cell::new(0),
            running: Cell::new(0),
            offset: Cell::new(0),
            known: Cell::new(0),
        }
    }

    /// For how long the group was not on the CPU: that does not change while it is.
    fn off(&self) -> u64 {
        self.enabled.get().wrapping_sub(self.running.get())
    }
}

/// A thread's counters. Zeros: it has none.
pub(super) struct Counters {
    pages: Cell<*const u8>,
    page_bytes: Cell<usize>,
    group: Cell<u32>,
    /// Of the recorder that the rest belongs to.
    pub turn: Cell<u32>,
    /// How many; a fault takes them away.
    pub count: AtomicU32,
    /// For a signal handler that comes in between: hands off.
    pub is_reading: AtomicBool,
    is_calibrating: Cell<bool>,
    unused: [Cell<u8>; COUNTERS],
    /// What a begin and an end count of themselves.
    own: [Cell<u64>; COUNTERS],
}

impl Counters {
    pub(super) const fn none() -> Self {
        Self {
            pages: Cell::new(null()),
            page_bytes: Cell::new(0),
            group: Cell::new(0),
            turn: Cell::new(0),
            count: AtomicU32::new(0),
            is_reading: AtomicBool::new(false),
            is_calibrating: Cell::new(false),
            unused: [const { Cell::new(0) }; COUNTERS],
            own: [const { Cell::new(0) }; COUNTERS],
        }
    }

    /// Where its pages are, if it counts.
    pub(super) fn pages(&self) -> Option<*const u8> {
        Some(self.pages.get()).filter(|pages| !pages.is_null())
    }

    pub(super) fn are_read(&self) -> bool {
        self.count.load(Relaxed) != 0
    }

    pub(super) fn is_calibrating(&self) -> bool {
        self.is_calibrating.get()
    }

    /// Counts nothing any more; spans that are open are not read again.
    pub(super) fn forget(&self) {
        self.pages.set(null());
        self.count.store(0, Relaxed);
        self.turn.set(0);
    }

    /// Counts this group from now on.
    ///
    /// # Safety
    /// From `pages` on are as many pages of perf's, which stay until `forget`.
    pub(super) unsafe fn take(&self, pages: *const u8, page_bytes: usize, group: u32, count: u32) {
        self.page_bytes.set(page_bytes);
        self.pages.set(pages);
        self.group.set(group);
        for (number, unused) in self.unused.iter().enumerate().take(count as usize) {
            // SAFETY: one of the pages, by the contract.
            unused.set(unsafe { page(pages, number * page_bytes) }.unused());
        }
        self.count.store(count, Relaxed);
    }

    /// Reads all, which the kernel puts on the CPU and takes off it together.
    #[inline(never)]
    pub(super) fn read(&self, now: &Counted) {
        let (page_bytes, count) = (self.page_bytes.get(), self.count.load(Relaxed));
        self.is_reading.store(true, Relaxed);
        compiler_fence(SeqCst);
        now.known.set(0);
        // None, if a signal handler's span was just before us.
        if let Some(pages) = self.pages() {
            // SAFETY: they stay while `is_reading` says so.
            unsafe { self.read_pages(pages, page_bytes, count as usize, now) };
        }
        compiler_fence(SeqCst);
        self.is_reading.store(false, Relaxed);
    }

    /// # Safety
    /// From `pages` on are as many pages of perf's.
    #[inline(always)]
    unsafe fn read_pages(&self, pages: *const u8, page_bytes: usize, count: usize, now: &Counted) {
        // SAFETY: the first of them.
        let first = unsafe { page(pages, 0) };
        loop {
            let lock = first.lock.load(Relaxed);
            compiler_fence(SeqCst);
            now.enabled.set(first.time_enabled.load(Relaxed));
            now.running.set(first.time_running.load(Relaxed));
            now.offset.set(first.time_offset.load(Relaxed));
            let (mut known, mut at) = (0, 0);
            for (number, value) in now.value.iter().enumerate().take(count) {
                // SAFETY: one of them, by the contract.
                let (counted, holds) = unsafe { page(pages, at) }.read(self.unused[number].get());
                value.set(counted);
                known |= u32::from(holds) << number;
                at += page_bytes;
            }
            now.known.set(known);
            compiler_fence(SeqCst);
            if first.lock.load(Relaxed) == lock {
                return;
            }
        }
    }

    /// Measures what a begin and an end count of themselves, on empty spans.
    pub(super) fn calibrate(&self, empty_span: impl Fn()) {
        for own in &self.own {
            own.set(u64::MAX);
        }
        self.is_calibrating.set(true);
        for _ in 0..4 {
            empty_span();
        }
        self.is_calibrating.set(false);
        for own in &self.own {
            if own.get() == u64::MAX {
                own.set(0);
            }
        }
    }

    /// Takes the least of what empty spans counted.
    pub(super) fn take_least(&self, begin: &Counted, end: &Counted) {
        let known = begin.known.get() & end.known.get();
        for (number, own) in self.own.iter().enumerate() {
            let counted = end.value[number]
                .get()
                .wrapping_sub(begin.value[number].get());
            if known >> number & 1 != 0 && counted < own.get() {
                own.set(counted);
            }
        }
    }

    /// What a span counted, as it goes behind its row, and how many words of it there are.
    pub(super) fn counts(
        &self,
        (begin, begin_cycles): (&Counted, u64),
        (end, end_cycles): (&Counted, u64),
    ) -> (Counts, [u64; COUNTERS], usize) {
        let every = (1 << self.count.load(Relaxed)) - 1;
        let mut known = begin.known.get() & end.known.get() & every;
        let mut share = WHOLE;
        if known != 0 && begin.off() != end.off() {
            share = self.share((begin, begin_cycles), (end, end_cycles));
            known = if share == 0 { 0 } else { known };
        }
        let (mut values, mut length) = ([0; COUNTERS], 0);
        for number in (0..COUNTERS).filter(|number| known >> number & 1 != 0) {
            let [first, last] = [begin, end].map(|at| at.value[number].get());
            values[length] = scaled(less(first, last, self.own[number].get()), share);
            length += 1;
        }
        let head = Counts {
            group: self.group.get() as u16,
            known: known as u16,
            reserved: [0; 2],
        };
        (head, values, length)
    }

    /// How much of a span that was switched off and on the group was on the CPU, as `share_of` has it.
    #[cold]
    fn share(&self, begin: (&Counted, u64), end: (&Counted, u64)) -> u64 {
        let Some(pages) = self.pages() else { return 0 };
        // SAFETY: the first of its pages.
        let page = unsafe { page(pages, 0) };
        if !page.can(USER_TIME) {
            return 0;
        }
        share_of((begin.0, page.ns(begin.1)), (end.0, page.ns(end.1)))
    }
}

/// # Safety
/// At so many bytes from `pages` is a page of perf's that stays while it is used.
#[inline(always)]
unsafe fn page<'a>(pages: *const u8, at: usize) -> &'a Page {
    // SAFETY: by the contract; all that the kernel writes in it is atomic here.
    unsafe { &*pages.add(at).cast() }
}

/// How much of a span the group was on the CPU: 1 << 32 for all of it. 0 where that is not known, or
/// less than half: what was counted then is no estimate. A group is not on the CPU for as long as the
/// time that it was wanted grows and the time that it was running does not.
fn share_of((begin, begin_ns): (&Counted, u64), (end, end_ns): (&Counted, u64)) -> u64 {
    if begin.off() == end.off() {
        return WHOLE;
    }
    let until = |at: &Counted, time: &Cell<u64>, ns: u64| {
        time.get().wrapping_add(at.offset.get()).wrapping_add(ns)
    };
    let wanted =
        until(end, &end.enabled, end_ns).wrapping_sub(until(begin, &begin.enabled, begin_ns));
    let on = until(end, &end.running, end_ns).wrapping_sub(until(begin, &begin.running, begin_ns));
    if on as i64 <= 0 || on > wanted || on < wanted - on || wanted >> 32 != 0 {
        return 0;
    }
    (on << 32) / wanted
}

/// What a span counted, less what counting costs.
fn less(begin: u64, end: u64, own: u64) -> u64 {
    let counted = end.wrapping_sub(begin).wrapping_sub(own);
    if counted as i64 > 0 { counted } else { 0 }
}

/// The same as if the group had been on all the time. In two steps, for neither product to overflow.
fn scaled(counted: u64, share: u64) -> u64 {
    if share == WHOLE {
        return counted;
    }
    ((counted / share) << 32) + ((counted % share) << 32) / share
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
