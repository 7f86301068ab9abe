//! From a begin's reading to a row in the region.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::compiler_fence;

use super::abi::{self, CAUSES, Episode, Keeping, Meter, Row, Share};
use super::clock::{cycles, cycles_after_work};
use super::process::{Process, Thread, attach, process, with_thread};

/// Probabilities are of 2^32: this and more is always.
const ALWAYS: u64 = 1 << 32;

/// What a begin saw.
#[derive(Debug)]
pub(crate) struct Reading {
    meter: &'static Meter,
    epoch: u64,
    begin: u64,
    seq: u32,
    ns: [u64; CAUSES],
    n: [u32; CAUSES],
}

/// Reads this thread's meter; `None`: this span is not metered.
#[inline(never)]
pub(crate) fn begin() -> Option<Reading> {
    with_thread(|thread| {
        let is_attached = |epoch: u64| epoch != 0 && epoch == thread.epoch.get();
        let epoch = process().map_or(0, |process| process.epoch.load(Acquire));
        if !is_attached(epoch) && !attach(thread) {
            return None;
        }
        let (process, meter) = (process()?, thread.meter.get()?);
        let sample = process.region().sample.load(Relaxed);
        if sample < ALWAYS {
            if thread.random() >= sample {
                let spans = meter.spans.load(Relaxed).wrapping_add(1);
                meter.spans.store(spans, Relaxed);
                // A recorder's end may not go unnoticed for ever by spans that are not selected.
                if spans & 0xfff == 0 && process.is_silent(cycles()) {
                    process.recorder_lives(cycles());
                }
                return None;
            }
            meter
                .open
                .store(meter.open.load(Relaxed).wrapping_add(1), Relaxed);
        }
        let mut reading = Reading {
            meter,
            epoch: thread.epoch.get(),
            begin: 0,
            seq: 0,
            ns: [0; CAUSES],
            n: [0; CAUSES],
        };
        loop {
            // Again, if an interrupt or a switch came in between.
            reading.seq = meter.seq.load(Relaxed);
            compiler_fence(AcqRel);
            reading.begin = cycles();
            for cause in 0..CAUSES {
                reading.ns[cause] = meter.totals.ns[cause].load(Relaxed);
                reading.n[cause] = meter.totals.n[cause].load(Relaxed);
            }
            compiler_fence(AcqRel);
            if meter.seq.load(Relaxed) == reading.seq {
                break;
            }
        }
        let heard = !process.is_silent(reading.begin) || process.recorder_lives(reading.begin);
        heard.then_some(reading)
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
fn kept(keeping: &Keeping, thread: &Thread, reading: &Reading) -> Option<u16> {
    let code = keeping.others.load(Relaxed) as u16;
    if code == 0 {
        return Some(0);
    }
    let always_from = keeping.always_from.load(Relaxed);
    let is_tail = || cycles_after_work().0.wrapping_sub(reading.begin) >= always_from;
    if always_from != u64::MAX && is_tail() {
        return Some(0);
    }
    (thread.random() < abi::keep_probability(code)).then_some(code)
}

/// Whose the largest of a cause's `n` latest episodes was; 0: nobody is known.
fn culprit(meter: &Meter, cause: usize, n: u32) -> u16 {
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

/// Subtracts, and writes a row.
#[inline(never)]
pub(crate) fn end(reading: &Reading, name: &'static str, id: Option<i64>) {
    with_thread(|thread| {
        let Some(process) = process() else { return };
        // Begun under another recorder, before a fork, or on another thread.
        if thread.epoch.get() != reading.epoch || process.epoch.load(Acquire) != reading.epoch {
            return;
        }
        let (region, meter) = (process.region(), reading.meter);
        let sample = region.sample.load(Relaxed);
        let number = number(process, thread, name);
        let Some(kept) = kept(&region.keeping[usize::from(number)], thread, reading) else {
            count(meter, sample);
            return;
        };
        let mut shares = [Share {
            ns: 0,
            n: 0,
            who: 0,
            reserved: 0,
        }; CAUSES];
        let (mut causes, mut used, mut now, mut cpu);
        loop {
            let seq = meter.seq.load(Relaxed);
            compiler_fence(AcqRel);
            (now, cpu) = cycles_after_work();
            (causes, used) = (0u16, 0);
            if seq != reading.seq {
                for cause in 0..CAUSES {
                    let ns = meter.totals.ns[cause]
                        .load(Relaxed)
                        .wrapping_sub(reading.ns[cause]);
                    let n = meter.totals.n[cause]
                        .load(Relaxed)
                        .wrapping_sub(reading.n[cause]);
                    if ns != 0 || n != 0 {
                        causes |= 1 << cause;
                        shares[used] = Share {
                            ns,
                            n,
                            who: culprit(meter, cause, n),
                            reserved: 0,
                        };
                        used += 1;
                    }
                }
            }
            compiler_fence(AcqRel);
            if meter.seq.load(Relaxed) == seq {
                break;
            }
        }
        count(meter, sample);
        let row = Row {
            begin: reading.begin,
            wall: now.wrapping_sub(reading.begin),
            id: id.unwrap_or(0) as u64,
            pid: 0,
            tid: 0,
            causes,
            cpu,
            name: number,
            flags: if id.is_some() { abi::ROW_HAS_ID } else { 0 },
            text: 0,
            queue_ns: 0,
            kept,
            reserved: [0; 3],
        };
        write(process, thread, meter, &row, &shares[..used]);
    });
}

fn write(process: &Process, thread: &Thread, meter: &Meter, row: &Row, shares: &[Share]) {
    let room = abi::CHUNK_BYTES - 8;
    let has_room = thread.used.get() as usize + abi::ROW_MAX <= room;
    let chunk = match thread.chunk.get() {
        Some((chunk, _)) if has_room => chunk,
        _ => match next_chunk(process, thread, meter) {
            Some(chunk) => chunk,
            None => return,
        },
    };
    let at = thread.used.get() as usize;
    let used = at + size_of::<Row>() + size_of_val(shares);
    // SAFETY: from `at` there are ROW_MAX bytes left in the chunk, which this thread owns: nobody
    // reads them before `used` says that they are whole. Rows and shares are multiples of eight
    // bytes, so each is aligned.
    unsafe {
        let place = chunk.rows.as_ptr().add(at).cast_mut();
        place.cast::<Row>().write(*row);
        let after = place.add(size_of::<Row>()).cast::<Share>();
        after.copy_from_nonoverlapping(shares.as_ptr(), shares.len());
    }
    thread.used.set(used as u32);
    chunk.used.store(used as u32, Release);
}

/// Hands over the full chunk and takes a free one; `None` if there is none.
#[cold]
#[inline(never)]
fn next_chunk(process: &Process, thread: &Thread, meter: &Meter) -> Option<&'static abi::Chunk> {
    let region = process.region();
    if let Some((_, index)) = thread.chunk.take() {
        region.chunk_state[index as usize].store(abi::CHUNK_FULL, Release);
    }
    if thread.skip.get() > 0 {
        thread.skip.set(thread.skip.get() - 1);
        region.lost.fetch_add(1, Relaxed);
        return None;
    }
    let first = process.meters().as_ptr();
    // SAFETY: the meter is one of them.
    let slot = unsafe { (&raw const *meter).offset_from(first) } as u32;
    let owned = abi::CHUNK_OWNED | slot << 8;
    for (index, state) in region.chunk_state.iter().enumerate() {
        let free = state.load(Relaxed) == abi::CHUNK_FREE;
        if free
            && state
                .compare_exchange(abi::CHUNK_FREE, owned, AcqRel, Relaxed)
                .is_ok()
        {
            let chunk = process.chunk(index as u32);
            chunk.tid.store(meter.kernel_tid.load(Relaxed), Relaxed);
            thread.chunk.set(Some((chunk, index as u32)));
            thread.used.set(0);
            return Some(chunk);
        }
    }
    thread.skip.set(255); // looking costs more than a row: not each time
    region.lost.fetch_add(1, Relaxed);
    None
}

/// The number of a name in this region; `abi::NAMES` if there is no room.
fn number(process: &Process, thread: &Thread, name: &'static str) -> u8 {
    let address = name.as_ptr() as usize;
    let place = &thread.names[address >> 2 & 15];
    match place.get() {
        (known, number) if known == address && address != 0 => number,
        _ => {
            let number = look_up(process, name);
            if number != abi::NAMES {
                place.set((address, number));
            }
            number
        }
    }
}

#[cold]
fn look_up(process: &Process, name: &str) -> u8 {
    let text = &name.as_bytes()[..name.len().min(abi::NAME_BYTES - 5)];
    if text.is_empty() {
        return abi::NAMES;
    }
    let length = text.len() as u32;
    for (number, entry) in process.region().names.iter().enumerate() {
        let mut have = entry.length.load(Acquire);
        if have == 0 {
            match entry
                .length
                .compare_exchange(0, abi::NAME_BUSY, AcqRel, Acquire)
            {
                Ok(_) => {
                    for (place, byte) in entry.text.iter().zip(text) {
                        place.store(*byte, Relaxed);
                    }
                    entry.length.store(length, Release);
                    have = length;
                }
                Err(other) => have = other,
            }
        }
        for _ in 0..10_000 {
            if have != abi::NAME_BUSY {
                break;
            }
            have = entry.length.load(Acquire);
        }
        let is_same = || {
            entry
                .text
                .iter()
                .zip(text)
                .all(|(a, b)| a.load(Relaxed) == *b)
        };
        if have == length && is_same() {
            return number as u8;
        }
    }
    abi::NAMES
}
