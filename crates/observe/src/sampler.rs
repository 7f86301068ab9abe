//! The loop: the clock, the counters, the clock again, then the tags.
//!
//! Compiled for each number of counters and tags and each kind of reading, so that nothing is
//! decided between the two readings of the clock.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tailscope_signals::clock::Cycles;
use tailscope_signals::preempted::Preemption;

use crate::pace::Pace;
use crate::signal::Read;

/// Cycles of a period from which waiting leaves the core's resources to its other hardware thread.
const PAUSES_FROM: u64 = 5_000;

/// What was read at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample<const N: usize, const T: usize> {
    /// The clock before the counters, in cycles.
    pub start: u64,
    /// The clock after them.
    pub end: u64,
    /// The counters.
    pub counters: [u64; N],
    /// The tags, read after `end`.
    pub tags: [u64; T],
    /// The observer lost its CPU since the sample before this one.
    pub preempted: bool,
}

/// Takes samples as they come; whatever it does lengthens the period.
pub trait Sink<const N: usize, const T: usize> {
    /// One sample.
    fn take(&mut self, sample: &Sample<N, T>);
}

/// What the loop reads.
#[derive(Debug)]
pub struct Readers<R, const N: usize, const T: usize> {
    /// Between the two readings of the clock.
    pub counters: [R; N],
    /// After them.
    pub tags: [R; T],
}

/// One sample.
///
/// Two samples in a row could share a reading, the second one of the first: that takes half as many. But
/// then all that is made of a sample lies between its readings, next to none agree, and those that do
/// are those that saw no write.
#[inline(always)]
fn sample<R: Read, const N: usize, const T: usize>(
    readers: &Readers<R, N, T>,
    watch: Option<&Preemption>,
) -> Sample<N, T> {
    // A line that the application has written since the last sample comes from its cache. That takes a
    // hundred cycles and more, of which both readings of the clock would disagree by some: the
    // samples that saw a write would be dropped rather than others. So it comes first.
    readers.counters.iter().for_each(Read::fetch);
    let start = Cycles::between_loads().0;
    let counters = std::array::from_fn(|i| readers.counters[i].read());
    let end = Cycles::after_loads().0;
    Sample {
        start,
        end,
        counters,
        tags: std::array::from_fn(|i| readers.tags[i].read()),
        preempted: watch.is_some_and(Preemption::since_last),
    }
}

/// Waits until the next sample is due, or the clock shows `until`.
#[inline(always)]
fn wait(pace: &Pace, until: u64, watch: Option<&Preemption>) {
    let due = pace.due().min(until);
    // A pause takes up to 140 cycles: too coarse for short periods.
    let pauses = pace.every() > PAUSES_FROM;
    if pauses && let Some(nap) = pace.nap(Cycles::now().0, due) {
        std::thread::sleep(nap);
        // Given up, not lost.
        let _ = watch.map(Preemption::since_last);
    }
    while Cycles::now().0 < due {
        if pauses {
            std::hint::spin_loop();
        }
    }
}

/// Samples until the clock shows `until`, or it is told to stop.
#[inline(never)]
pub fn run<R: Read, const N: usize, const T: usize>(
    readers: &Readers<R, N, T>,
    pace: &mut Pace,
    until: u64,
    stop: &AtomicBool,
    watch: Option<&Preemption>,
    sink: &mut impl Sink<N, T>,
) {
    loop {
        if pace.every() > 0 {
            wait(pace, until, watch);
        }
        let sample = sample(readers, watch);
        pace.took(sample.start);
        sink.take(&sample);
        if sample.start >= until || stop.load(Relaxed) {
            return;
        }
    }
}
