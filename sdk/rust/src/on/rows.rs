//! From a begin's reading to a row in the region.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;
use std::marker::PhantomData;

use super::abi::{self, CAUSES, Episode, Meter, RECORDERS, Region, Retention, Row, Share};
use super::chunks::{put, room};
use super::clock::{cycles, cycles_after_work};
use super::counters::Counted;
use super::names::number;
use super::probe::{is_heard_by, listens};
use super::process::{Process, attach, process};
use super::sys::KeptErrno;
use super::thread::{Reading, Seen, Thread, with_thread};
use super::turns::{count_others, recorder_left};
use crate::Span;

/// Probabilities are of 2^32: this and more is always.
const ALWAYS: u64 = 1 << 32;

/// Whether a span that begins is metered: under `--sample` a draw decides.
#[inline(always)]
fn is_selected(process: &Process, thread: &Thread, meter: &Meter) -> bool {
    let sample = process.region().sample.load(Relaxed);
    if sample >= ALWAYS || thread.counters.is_calibrating() {
        return true;
    }
    if thread.random() >= sample {
        let spans = meter.spans.load(Relaxed).wrapping_add(1);
        meter.spans.store(spans, Relaxed);
        // A recorder's end may not go unnoticed for ever by spans that are not selected.
        if spans & 0xfff == 0 && process.is_silent(cycles()) {
            process.recorder_is_alive(cycles());
        }
        return false;
    }
    let open = meter.open.load(Relaxed).wrapping_add(1);
    meter.open.store(open, Relaxed);
    true
}

/// The clock, and what the thread's time went to so far.
#[inline(always)]
fn read_meter(meter: &Meter, seen: &Seen) {
    loop {
        // Again, if an interrupt or a switch came in between.
        let seq = meter.seq.load(Relaxed);
        compiler_fence(AcqRel);
        seen.begin.set(cycles());
        for cause in 0..CAUSES {
            seen.ns[cause].set(meter.totals.ns[cause].load(Relaxed));
            seen.n[cause].set(meter.totals.n[cause].load(Relaxed));
        }
        compiler_fence(AcqRel);
        if meter.seq.load(Relaxed) == seq {
            seen.seq.set(seq);
            return;
        }
    }
}

/// Reads all that a begin reads; returns whether the recorder lives.
#[inline(always)]
fn see(process: &Process, thread: &Thread, meter: &Meter, seen: &Seen, is_near: bool) -> bool {
    read_meter(meter, seen);
    let begin = seen.begin.get();
    if process.is_silent(begin) && !process.recorder_is_alive(begin) {
        return false;
    }
    if is_near && thread.counters.are_read() {
        seen.counted.turn.set(thread.counters.turn.get());
        // Last, and first in the end: what lies between is the span's own.
        thread.counters.read(&seen.counted, None);
    } else {
        seen.counted.turn.set(0);
    }
    true
}

/// Reads this thread's meter for the first recorder; `None`: it does not meter this span.
#[inline(never)]
pub(crate) fn begin() -> Option<Reading> {
    begin_for(0)
}

/// The same for the second.
#[inline(never)]
pub(super) fn begin_second() -> Option<Reading> {
    begin_for(1)
}

/// The same for those that listen. One whose events are counted comes last, and first in the end: the other's
/// work is no part of what the span counts.
#[cold]
#[inline(never)]
pub(crate) fn begin_both() -> [Option<Reading>; RECORDERS] {
    let first = || is_heard_by(0).then(begin).flatten();
    let second = || is_heard_by(1).then(begin_second).flatten();
    if with_thread(0, |thread| thread.counters.are_read()) {
        let second = second();
        [first(), second]
    } else {
        [first(), second()]
    }
}

/// An empty span for one recorder alone.
#[inline(always)]
fn empty_span(which: usize) -> Span {
    let (reading, second) = match which {
        0 => (begin(), None),
        _ => (None, begin_second()),
    };
    Span {
        reading,
        second,
        name: "",
        not_send: PhantomData,
    }
}

/// The recorder has chosen other events, or none.
#[cold]
#[inline(never)]
fn take_turn(which: usize, process: &Process, thread: &Thread) {
    let _kept = KeptErrno::here();
    if count_others(which, process, thread) {
        thread.counters.calibrate(|| empty_span(which).end());
    }
}

#[inline(always)]
fn begin_for(which: usize) -> Option<Reading> {
    if !listens(which) {
        recorder_left(which);
        return None;
    }
    with_thread(which, |thread| {
        let epoch = process(which).map_or(0, |process| process.epoch.load(Acquire));
        if (epoch == 0 || epoch != thread.epoch.get()) && !attach(which, thread) {
            return None;
        }
        let (process, meter) = (process(which)?, thread.meter.get()?);
        if process.region().turn.load(Relaxed) != thread.counters.turn.get() {
            take_turn(which, process, thread);
        }
        if !is_selected(process, thread, meter) {
            return None;
        }
        let reading = thread.open()?;
        let is_heard = thread.with_seen(reading, |seen| {
            see(process, thread, meter, seen, reading.is_near())
        })?;
        if !is_heard {
            thread.close(reading);
            return None;
        }
        Some(reading)
    })
}

/// A span ended, kept or not.
fn count(meter: &Meter, sample: u64) {
    meter
        .spans
        .store(meter.spans.load(Relaxed).wrapping_add(1), Relaxed);
    let open = meter.open.load(Relaxed);
    if sample < ALWAYS && open > 0 {
        meter.open.store(open - 1, Relaxed);
    }
}

/// The code that the row of a span that ends now carries; `None` if none is written.
fn kept(retention: &Retention, thread: &Thread, begin: u64) -> Option<u16> {
    let code = retention.others.load(Relaxed) as u16;
    if code == 0 {
        return Some(0);
    }
    let always_from = retention.always_from.load(Relaxed);
    let is_tail = || cycles_after_work().0.wrapping_sub(begin) >= always_from;
    if always_from != u64::MAX && is_tail() {
        return Some(0);
    }
    (thread.random() < abi::keep_probability(code)).then_some(code)
}

/// Whose the largest of a cause's `n` latest episodes was; 0: nobody is known.
fn blamed(meter: &Meter, cause: usize, n: u32) -> u16 {
    let Some(recent) = abi::recent(cause) else {
        return 0;
    };
    let count = meter.totals.n[cause].load(Relaxed) as u16;
    let age = |episode: &Episode| u32::from(count.wrapping_sub(episode.n.load(Relaxed)));
    meter.recent[recent]
        .episode
        .iter()
        .find(|episode| episode.ns.load(Relaxed) != 0 && age(episode) < n)
        .map_or(0, |episode| episode.who.load(Relaxed))
}

/// What a span's time went to.
struct Gains {
    end: u64,
    cpu: u16,
    causes: u16,
    shares: [Share; CAUSES],
    length: usize,
}

/// What the meter gained since the begin.
#[inline(always)]
fn gains(meter: &Meter, seen: &Seen) -> Gains {
    const NONE: Share = Share {
        ns: 0,
        n: 0,
        who: 0,
        reserved: 0,
    };
    let mut gains = Gains {
        end: 0,
        cpu: 0,
        causes: 0,
        shares: [NONE; CAUSES],
        length: 0,
    };
    loop {
        let seq = meter.seq.load(Relaxed);
        compiler_fence(AcqRel);
        (gains.end, gains.cpu) = cycles_after_work();
        (gains.causes, gains.length) = (0, 0);
        if seq != seen.seq.get() {
            for cause in 0..CAUSES {
                let totals = &meter.totals;
                let ns = totals.ns[cause].load(Relaxed);
                let ns = ns.wrapping_sub(seen.ns[cause].get());
                let n = totals.n[cause].load(Relaxed);
                let n = n.wrapping_sub(seen.n[cause].get());
                if ns != 0 || n != 0 {
                    let who = blamed(meter, cause, n);
                    gains.causes |= 1 << cause;
                    gains.shares[gains.length] = Share { ns, n, who, ..NONE };
                    gains.length += 1;
                }
            }
        }
        compiler_fence(AcqRel);
        if meter.seq.load(Relaxed) == seq {
            return gains;
        }
    }
}

/// Ends a span that this thread began for the first recorder.
#[inline(never)]
pub(crate) fn end(reading: Reading, name: &'static str, id: Option<i64>) {
    end_for(0, reading, name, id);
}

/// The same for the second.
#[inline(never)]
fn end_second(reading: Reading, name: &'static str, id: Option<i64>) {
    end_for(1, reading, name, id);
}

/// The same for all that meter it, in the other order than at the begin.
#[cold]
#[inline(never)]
pub(crate) fn end_both(
    [first, second]: [Option<Reading>; RECORDERS],
    name: &'static str,
    id: Option<i64>,
) {
    let counts = |seen: &Seen| seen.counted.turn.get() != 0;
    let counts = |reading| with_thread(0, |thread| thread.with_seen(reading, counts));
    let end_first = || {
        if let Some(reading) = first {
            end(reading, name, id);
        }
    };
    let end_other = || {
        if let Some(reading) = second {
            end_second(reading, name, id);
        }
    };
    if first.and_then(counts) == Some(true) {
        end_first();
        end_other();
    } else {
        end_other();
        end_first();
    }
}

#[inline(always)]
fn end_for(which: usize, reading: Reading, name: &'static str, id: Option<i64>) {
    with_thread(which, |thread| {
        let Some(process) = process(which) else {
            return;
        };
        let ended = thread.with_seen(reading, |seen| {
            // Else it was begun under another recorder, or before a fork.
            if process.epoch.load(Acquire) == thread.epoch.get() {
                end_seen(process, thread, seen, name, id);
            }
        });
        // Else it was begun on another thread.
        if ended.is_some() {
            thread.close(reading);
        }
    });
}

/// Reads the counters, and goes on with the rest.
#[inline(always)]
fn end_seen(process: &Process, thread: &Thread, seen: &Seen, name: &'static str, id: Option<i64>) {
    let counters = &thread.counters;
    if seen.counted.turn.get() == 0 {
        return subtract(process, thread, seen, None, name, id);
    }
    let now = Counted::new();
    counters.read(&now, Some(&seen.counted));
    if counters.is_calibrating() {
        counters.take_least(&seen.counted, &now);
    } else {
        subtract(process, thread, seen, Some(&now), name, id);
    }
}

/// Subtracts what the begin saw, and writes a row.
#[inline(never)]
fn subtract(
    process: &Process,
    thread: &Thread,
    seen: &Seen,
    counted: Option<&Counted>,
    name: &'static str,
    id: Option<i64>,
) {
    let Some(meter) = thread.meter.get() else {
        return;
    };
    let (region, begin): (&Region, u64) = (process.region(), seen.begin.get());
    let sample = region.sample.load(Relaxed);
    let number = number(process, thread, name);
    let Some(kept) = kept(&region.retention[usize::from(number)], thread, begin) else {
        count(meter, sample);
        return;
    };
    let gains = gains(meter, seen);
    count(meter, sample);
    let mut flags = if id.is_some() { abi::ROW_HAS_ID } else { 0 };
    if counted.is_some() {
        flags |= abi::ROW_HAS_COUNTS;
    }
    let row = Row {
        begin,
        wall: gains.end.wrapping_sub(begin),
        id: id.unwrap_or(0) as u64,
        pid: 0,
        tid: 0,
        causes: gains.causes,
        cpu: gains.cpu,
        name: number,
        flags,
        text: 0,
        queue_ns: 0,
        kept,
        reserved: [0; 3],
    };
    let Some(chunk) = room(process, thread, meter) else {
        return;
    };
    let mut at = thread.used.get() as usize;
    // SAFETY: from here on there are ROW_MAX bytes left in the chunk, which this thread owns: nobody reads
    // them before `used` says that they are whole.
    unsafe {
        at = put(chunk, at, &[row]);
        at = put(chunk, at, &gains.shares[..gains.length]);
        if let Some(now) = counted {
            let (begun, ended) = ((&seen.counted, begin), (now, gains.end));
            thread
                .counters
                .put(begun, ended, |word| at = put(chunk, at, &[word]));
        }
    }
    thread.used.set(at as u32);
    chunk.used.store(at as u32, Release);
}
