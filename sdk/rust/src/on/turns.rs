//! Which events a thread counts, and until when. Everything here is rare: at a thread's first span, once
//! a turn, and at the end.

use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicU32, fence};

use super::abi::{self, COUNTERS};
use super::perf::{self, Event};
use super::process::{Process, process, stop_counting};
use super::sys::{self, AfterFork, Errno, KeptErrno};
use super::thread::{Thread, with_thread};
use super::{guard, probe};

/// Pages of all meters.
const PAGES: usize = abi::METERS as usize * COUNTERS;
/// How many begins go by until threads that have ended are looked for.
const LOOK_EVERY: u32 = 1024;

/// What the region says.
struct Wanted {
    group: u32,
    events: [Event; COUNTERS],
    count: usize,
}

impl Wanted {
    /// `None`: it was being written.
    fn read(region: &abi::Region, turn: u32) -> Option<Self> {
        let from = &region.counting;
        let mut events = [Event::default(); COUNTERS];
        for (event, from) in events.iter_mut().zip(&from.event) {
            event.kind = from.kind.load(Relaxed);
            event.config = [&from.config, &from.config1, &from.config2].map(|c| c.load(Relaxed));
        }
        let wanted = Self {
            group: from.group.load(Relaxed),
            events,
            count: COUNTERS.min(from.count.load(Relaxed) as usize),
        };
        fence(Acquire);
        (turn & 1 == 0 && region.turn.load(Relaxed) == turn).then_some(wanted)
    }
}

/// The recorder has gone while threads counted. Each stops at its next begin; those that have ended are
/// looked for now and then. When none is left, a begin is a load and a branch again.
#[cold]
#[inline(never)]
pub(super) fn recorder_left(which: usize) {
    let _kept = KeptErrno::here();
    let Some(process) = process(which) else {
        return probe::set_counting(which, false);
    };
    with_thread(which, |thread| stop_counting(process, thread));
    if !process
        .left
        .fetch_add(1, Relaxed)
        .is_multiple_of(LOOK_EVERY)
        || !process.lock()
    {
        return;
    }
    let mut is_one_left = false;
    let threads = process.counting().map_or(&[][..], |(_, threads)| threads);
    for thread in threads {
        match thread.load(Relaxed) {
            0 => {}
            // Its pages are replaced by whoever is next there.
            id if !sys::has_thread(id) => thread.store(0, Relaxed),
            _ => is_one_left = true,
        }
    }
    if !is_one_left {
        probe::set_counting(which, false);
        guard::lift();
    }
    process.unlock();
}

/// Where pages are, and which thread's they are, by meter; made where there are none yet; under the lock.
fn make_room(process: &Process) -> Result<(*mut u8, &'static [AtomicU32]), Errno> {
    if let Some(room) = process.counting() {
        return Ok(room);
    }
    let (bytes, threads_bytes) = (PAGES * sys::page_bytes(), abi::METERS as usize * 4);
    let threads = sys::map_private(threads_bytes)?;
    let pages = sys::reserve(bytes)?;
    // SAFETY: what was just mapped; of perf's own pages a child has none.
    unsafe {
        sys::after_fork(threads, threads_bytes, AfterFork::Nothing)?;
        sys::after_fork(pages, bytes, AfterFork::Nothing)?;
        sys::empty(pages, bytes)?;
    }
    process.set_counting(pages, threads.cast());
    process.counting().ok_or(sys::ENOMEM)
}

/// Counts this group on this thread from now on; under the lock.
fn count_group(
    which: usize,
    process: &Process,
    thread: &Thread,
    wanted: &Wanted,
) -> Result<(), Errno> {
    let meter = thread.meter.get().ok_or(sys::ESRCH)?;
    let slot = process.slot(meter);
    let (first, threads) = make_room(process)?;
    let page_bytes = sys::page_bytes();
    let bytes = COUNTERS * page_bytes;
    // SAFETY: each meter has so many pages there. They are this thread's, as its meter is; of the thread
    // that was here before, none is read any more.
    let opened = unsafe {
        let at = first.add(slot as usize * bytes);
        sys::empty(at, bytes)?;
        probe::set_counting(which, true);
        process.left.store(0, Relaxed);
        perf::open_group(&wanted.events[..wanted.count], at, page_bytes)
            .map(|()| at)
            .inspect_err(|_| _ = sys::empty(at, bytes))
    };
    let at = opened?;
    guard::set();
    threads[slot as usize].store(meter.tid.load(Relaxed), Relaxed);
    // SAFETY: the pages that were just opened.
    unsafe {
        thread
            .counters
            .take(at, page_bytes, wanted.group, wanted.count as u32);
    }
    Ok(())
}

/// The recorder has chosen other events, or none. Returns whether the thread counts them now.
pub(super) fn count_others(which: usize, process: &Process, thread: &Thread) -> bool {
    let (region, counters) = (process.region(), &thread.counters);
    let turn = region.turn.load(Acquire);
    let Some(wanted) = Wanted::read(region, turn) else {
        return false; // not now: the next span sees it
    };
    if counters.is_reading.load(Relaxed) || !process.lock() {
        return false;
    }
    stop_counting(process, thread);
    counters.turn.set(turn);
    if turn != 0
        && wanted.count > 0
        && let Err(errno) = count_group(which, process, thread, &wanted)
    {
        region.counting.refused.store(errno.0 as u32, Relaxed);
    }
    process.unlock();
    counters.are_read()
}
