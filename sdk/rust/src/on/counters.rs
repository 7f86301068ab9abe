//! Hardware counters of a span.
//!
//! Each thread counts for itself, the group of events whose turn the recorder says it is, and reads
//! them in user space. Pages lie at a place that the thread's meter decides, so a thread that ends leaves nothing
//! that the next one there does not replace. What the kernel and interrupts execute is not counted, nor what runs
//! while the thread is switched out. What reading costs itself is measured when a thread begins to count, and
//! taken off.
//!
//! A thread opens the events as one perf group, maps the page of each, and closes the descriptors:
//! the mapping keeps the event. A begin reads the counters last, an end reads them first.

use core::cell::Cell;
use core::mem::offset_of;
use core::ptr::null;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU32, compiler_fence};

use super::abi::{COUNTERS, Counts};
use super::perf::{Page, USER_TIME};

/// What is all of a span.
const WHOLE: u64 = 1 << 32;

/// Of an end: since the begin the group was off the CPU.
const MOVED: u32 = 1 << 31;

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
    /// The first page's, which stays while that does.
    lock: Cell<u32>,
    /// Bit i: `value[i]` holds.
    known: Cell<u32>,
    /// Of a begin: of the counters that these are; 0: they were not read.
    pub turn: Cell<u32>,
}

impl Counted {
    pub(super) const fn new() -> Self {
        Self {
            value: [const { Cell::new(0) }; COUNTERS],
            enabled: Cell::new(0),
            running: Cell::new(0),
            offset: Cell::new(0),
            lock: Cell::new(0),
            known: Cell::new(0),
            turn: Cell::new(0),
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
    /// Bit i: there is an event i. A fault takes them away.
    every: AtomicU32,
    /// How many; likewise.
    count: AtomicU32,
    /// For a signal handler that comes in between: hands off.
    pub is_reading: AtomicBool,
    is_calibrating: Cell<bool>,
    /// Bits of a register that the pages say are none of its.
    unused: Cell<u32>,
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
            every: AtomicU32::new(0),
            count: AtomicU32::new(0),
            is_reading: AtomicBool::new(false),
            is_calibrating: Cell::new(false),
            unused: Cell::new(0),
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

    /// There are none any more; what spans that are open counted is not written.
    pub(super) fn forget(&self) {
        self.pages.set(null());
        self.pass();
        self.turn.set(0);
    }

    /// None is read any more in this turn.
    pub(super) fn pass(&self) {
        self.count.store(0, Relaxed);
        self.every.store(0, Relaxed);
    }

    /// Counts this group from now on.
    ///
    /// # Safety
    /// From `pages` on are as many pages of perf's, of registers of one width, which stay until `forget`.
    pub(super) unsafe fn take(&self, pages: *const u8, page_bytes: usize, group: u32, count: u32) {
        self.page_bytes.set(page_bytes);
        self.pages.set(pages);
        self.group.set(group);
        // SAFETY: the first of the pages, by the contract.
        self.unused.set(unsafe { page(pages, 0) }.unused());
        self.every.store((1 << count) - 1, Relaxed);
        self.count.store(count, Relaxed);
    }

    /// Reads all, which the kernel puts on the CPU and takes off it together: for a begin, or for the end of a span
    /// that began so.
    #[inline(always)]
    pub(super) fn read(&self, now: &Counted, begin: Option<&Counted>) {
        let outer = self.is_reading.load(Relaxed);
        self.is_reading.store(true, Relaxed);
        compiler_fence(SeqCst);
        now.known.set(0);
        let count = self.count.load(Relaxed) as usize;
        // None after a fault, or if a signal handler's span was just before us.
        if count != 0 {
            // SAFETY: so many pages stay while `is_reading` says so.
            while unsafe { self.read_pages(count, now, begin) }.is_none() {}
        }
        compiler_fence(SeqCst);
        self.is_reading.store(outer, Relaxed);
    }

    /// `None`: the kernel moved one meanwhile, or the register of one overflowed. Times are read where they are
    /// needed: of a begin, and of an end since whose begin the group was off the CPU.
    ///
    /// # Safety
    /// There are as many pages of perf's.
    #[inline(always)]
    unsafe fn read_pages(
        &self,
        count: usize,
        now: &Counted,
        begin: Option<&Counted>,
    ) -> Option<()> {
        let (pages, page_bytes) = (self.pages.get(), self.page_bytes.get());
        let unused = self.unused.get();
        // SAFETY: the first of them.
        let first = unsafe { page(pages, 0) };
        let lock = first.lock.load(Relaxed);
        compiler_fence(SeqCst);
        let (mut known, mut at) = (self.every.load(Relaxed), 0);
        for (number, value) in now.value.iter().enumerate().take(count) {
            // SAFETY: one of them, by the contract.
            let (counted, holds) = unsafe { page(pages, at) }.read(unused)?;
            value.set(counted);
            if !holds {
                known &= !(1 << number);
            }
            at += page_bytes;
        }
        if begin.is_none_or(|begin| begin.lock.get() != lock) {
            known |= if begin.is_some() { MOVED } else { 0 };
            now.enabled.set(first.time_enabled.load(Relaxed));
            now.running.set(first.time_running.load(Relaxed));
            now.offset.set(first.time_offset.load(Relaxed));
        }
        now.lock.set(lock);
        now.known.set(known);
        compiler_fence(SeqCst);
        (first.lock.load(Relaxed) == lock).then_some(())
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

    /// Puts what a span counted behind its row, word by word.
    #[inline(always)]
    pub(super) fn put(
        &self,
        (begin, begin_cycles): (&Counted, u64),
        (end, end_cycles): (&Counted, u64),
        mut put: impl FnMut(u64),
    ) {
        let every = self.every.load(Relaxed);
        let is_all = begin.known.get() == every && end.known.get() == every;
        if !is_all || begin.turn != self.turn {
            let (head, values, length) = self.some((begin, begin_cycles), (end, end_cycles));
            put(head);
            return values[..length].iter().for_each(|value| put(*value));
        }
        put(self.head(every));
        let count = self.count.load(Relaxed) as usize;
        let ends = begin.value.iter().zip(&end.value);
        for ((begin, end), own) in ends.zip(&self.own).take(count) {
            put(less(begin.get(), end.get(), own.get()));
        }
    }

    /// The same of a span of which not all is known, or in which the group was off the CPU: the head, the values,
    /// and how many there are.
    #[inline(never)]
    fn some(&self, begin: (&Counted, u64), end: (&Counted, u64)) -> (u64, [u64; COUNTERS], usize) {
        let mut known = begin.0.known.get() & end.0.known.get() & self.every.load(Relaxed);
        let share = match known {
            0 => 0,
            _ => self.share(begin, end),
        };
        if share == 0 || begin.0.turn != self.turn {
            known = 0;
        }
        let (mut values, mut length) = ([0; COUNTERS], 0);
        for number in (0..COUNTERS).filter(|number| known >> number & 1 != 0) {
            let [first, last] = [begin.0, end.0].map(|at| at.value[number].get());
            values[length] = scaled(less(first, last, self.own[number].get()), share);
            length += 1;
        }
        (self.head(known), values, length)
    }

    /// `Counts` as a word.
    fn head(&self, known: u32) -> u64 {
        const { assert!(offset_of!(Counts, group) == 0 && offset_of!(Counts, known) == 2) };
        u64::from(self.group.get() as u16) | u64::from(known as u16) << 16
    }

    /// How much of a span the group was on the CPU, as `share_of` has it.
    fn share(&self, begin: (&Counted, u64), end: (&Counted, u64)) -> u64 {
        if end.0.known.get() & MOVED == 0 || begin.0.off() == end.0.off() {
            return WHOLE;
        }
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
pub(super) mod tests;
