//! How often the threads enter the phase's function, counted now and then.
//!
//! Goal: CPU time between two entries, without a probe in the program. Rejected: samples of the
//! stack, which show how long a thread is in a function and not how often it comes. Chosen: a debug
//! register counts entries, in bursts of one poll. A thread stops for some microseconds at each
//! entry. So the counting ends after [`ENOUGH`] entries, and the time of the stops is taken off.

use std::hint::black_box;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tailscope_counters::{Entries, EntryCounter};

/// From the start of a burst to that of the next one, in polls.
const EVERY: u64 = 10;
/// Entries after which the figure is good enough.
const ENOUGH: u64 = 2_000;
/// Threads of a burst, at most: only these are slow at the time.
const AT_A_TIME: usize = 8;
/// Entries of the own function that show what one costs.
const OWN: u64 = 200;
/// If the stops took a larger share of the threads' time, the rest of it is not known well: what a stop
/// takes varies by some per cent.
const MOST_STOPPED: f64 = 0.75;

/// What was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Visits {
    /// Entries that were counted.
    pub counted: u64,
    /// CPU time of the program between two entries, in ns; `None` if too few were counted, or the
    /// function is entered so often that counting slows the program too much.
    pub apart_ns: Option<f64>,
    /// Why nothing was counted any more: the kernel's words.
    pub refused: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Counting {
    addresses: Vec<u64>,
    polls: u64,
    open: Vec<EntryCounter>,
    found: Entries,
    cost_ns: f64,
    bursts: usize,
    is_over: bool,
    refused: Option<String>,
}

impl Counting {
    /// Counts entries at these addresses; nothing without one.
    pub(super) fn new(addresses: Vec<u64>) -> Self {
        let mut counting = Self {
            is_over: addresses.is_empty(),
            addresses,
            ..Self::default()
        };
        if !counting.is_over {
            match cost_ns() {
                Ok(cost_ns) => counting.cost_ns = cost_ns,
                Err(e) => counting.refuse(&e),
            }
        }
        counting
    }

    fn refuse(&mut self, error: &io::Error) {
        self.is_over = true;
        self.open.clear();
        self.refused = Some(error.to_string());
    }

    /// Ends a burst, if there is one.
    pub(super) fn end_burst(&mut self) {
        for counter in self.open.drain(..) {
            let found = counter.read().unwrap_or_default();
            self.found.count += found.count;
            self.found.running += found.running;
        }
    }

    /// Ends a burst, or starts the next one, at a poll.
    pub(super) fn poll(&mut self, tids: impl Iterator<Item = u32>) {
        self.end_burst();
        let is_due = self.polls.is_multiple_of(EVERY);
        self.polls += 1;
        if self.is_over || !is_due || self.found.count >= ENOUGH {
            return;
        }
        let tids: Vec<u32> = tids.collect();
        let first = self.bursts * AT_A_TIME % tids.len().max(1);
        self.bursts += 1;
        let chosen = tids
            .iter()
            .cycle()
            .skip(first)
            .take(tids.len().min(AT_A_TIME));
        let pairs =
            chosen.flat_map(|tid| self.addresses.iter().map(move |address| (*tid, *address)));
        for (tid, address) in pairs.collect::<Vec<_>>() {
            match EntryCounter::open(tid, address) {
                Ok(counter) => self.open.push(counter),
                // The thread has just ended.
                Err(e) if e.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                Err(e) => return self.refuse(&e),
            }
        }
    }

    pub(super) fn finish(mut self) -> Visits {
        self.end_burst();
        Visits {
            refused: self.refused,
            ..visits(self.found, self.addresses.len(), self.cost_ns)
        }
    }
}

/// `running` has the threads' time once for each of the addresses.
fn visits(found: Entries, addresses: usize, cost_ns: f64) -> Visits {
    let running = found.running as f64 / addresses.max(1) as f64;
    let stopped = found.count as f64 * cost_ns;
    let is_known = found.count >= 10 && stopped < MOST_STOPPED * running;
    Visits {
        counted: found.count,
        apart_ns: is_known.then(|| (running - stopped) / found.count as f64),
        refused: None,
    }
}

/// What one entry takes of a thread's CPU time, in ns.
fn cost_ns() -> io::Result<f64> {
    let tid = rustix::thread::gettid().as_raw_nonzero().get();
    let counter = EntryCounter::open(tid.cast_unsigned(), entered as *const () as u64)?;
    let before = counter.read()?;
    for n in 0..OWN {
        entered(n);
    }
    let after = counter.read()?;
    let count = after.count.saturating_sub(before.count);
    let running = after.running.saturating_sub(before.running);
    match count {
        0 => Err(io::ErrorKind::Unsupported.into()),
        count => Ok(running as f64 / count as f64),
    }
}

#[inline(never)]
extern "C" fn entered(n: u64) -> u64 {
    black_box(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_the_stops_is_taken_off() {
        let found = |count, running| Entries { count, running };
        // 100 entries, each with 30 us until the next one, and 20 us of a stop.
        let seen = visits(found(100, 5_000_000), 1, 20_000.0);
        assert_eq!(seen.apart_ns, Some(30_000.0));
        // The same at two addresses.
        let seen = visits(found(100, 10_000_000), 2, 20_000.0);
        assert_eq!(seen.apart_ns, Some(30_000.0));
        assert_eq!(visits(found(9, 5_000_000), 1, 0.0).apart_ns, None);
        assert_eq!(visits(found(240, 5_000_000), 1, 20_000.0).apart_ns, None);
    }
}
