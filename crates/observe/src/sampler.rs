//! The loop: the clock, the counters, the clock again, then the tags.
//!
//! Compiled for each number of counters and tags and each kind of reading, so that nothing is
//! decided between the two readings of the clock.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use tailscope_signals::clock::{self, Cycles};
use tailscope_signals::preempted::Preemption;

use crate::dte::Tolerance;
use crate::pace::Pace;
use crate::prefetch::Prefetch;
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
    /// The counters were read a second time, for the first took unusually long.
    pub again: bool,
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

/// Which reading takes unusually long: longer than the one before, by more than both may differ.
#[derive(Debug, Clone, Copy)]
struct Usual {
    tolerance: Tolerance,
    /// When the one before began, and how long it took.
    last: Option<(u64, u64)>,
}

impl Usual {
    #[inline(always)]
    fn is_exceeded(self, start: u64, end: u64) -> bool {
        self.last.is_some_and(|(before, took)| {
            let period = start.wrapping_sub(before);
            end.wrapping_sub(start) > took + self.tolerance.cycles(period)
        })
    }
}

/// The counters between two readings of the clock.
///
/// The first fence keeps what was made of the last sample out of this one, and waits for what is fetched.
/// The lines are asked for once more behind it: one that the application has taken meanwhile is on its
/// way while the clock is read, which takes 26 cycles on an EPYC. Before the fence that is of no use there.
/// The loads come after the reading by their addresses, which takes 8 cycles less than a second fence.
#[inline(always)]
fn read<R: Read, const N: usize>(
    counters: &[R; N],
    prefetch: &mut Prefetch<N>,
) -> (u64, [u64; N], u64) {
    let fetched = prefetch.fetch(counters);
    clock::settle();
    counters.iter().for_each(Read::ask);
    let (start, after) = Cycles::before_loads();
    let values = std::array::from_fn(|i| counters[i].read_after(after));
    let end = Cycles::after_loads();
    prefetch.learn(fetched, &values);
    (start.0, values, end.0)
}

/// One sample.
///
/// Where the application wrote again between the fetch and the reading, the line is fetched within it,
/// and this sample would disagree with the one before and the one after. The line is here then: read
/// a second time, it takes as long as it does else. Once only, and not at all where fetches are in vain, so
/// that a line that is written without a rest is not taken from the application more often for it.
///
/// Two samples in a row could share a reading, the second one of the first: that takes half as many. But
/// then all that is made of a sample lies between its readings, next to none agree, and those that do
/// are those that saw no write.
#[inline(always)]
fn sample<R: Read, const N: usize, const T: usize>(
    readers: &Readers<R, N, T>,
    usual: Usual,
    prefetch: &mut Prefetch<N>,
    watch: Option<&Preemption>,
) -> Sample<N, T> {
    let (mut start, mut counters, mut end) = read(&readers.counters, prefetch);
    let again = !prefetch.is_vain() && usual.is_exceeded(start, end);
    if again {
        (start, counters, end) = read(&readers.counters, prefetch);
    }
    Sample {
        start,
        end,
        counters,
        tags: std::array::from_fn(|i| readers.tags[i].read()),
        again,
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
    tolerance: Tolerance,
    until: u64,
    stop: &AtomicBool,
    watch: Option<&Preemption>,
    sink: &mut impl Sink<N, T>,
) {
    let mut usual = Usual {
        tolerance,
        last: None,
    };
    let mut prefetch = Prefetch::default();
    loop {
        if pace.every() > 0 {
            wait(pace, until, watch);
        }
        let sample = sample(readers, usual, &mut prefetch, watch);
        usual.last = Some((sample.start, sample.end.wrapping_sub(sample.start)));
        pace.took(sample.start);
        sink.take(&sample);
        if sample.start >= until || stop.load(Relaxed) {
            return;
        }
    }
}
