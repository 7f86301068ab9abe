//! What a run adds up.

use hdrhistogram::Histogram;

use super::protocol::Verdict;
use crate::clock::Nanos;

/// Times beyond an hour count as an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// A histogram of nanoseconds with a relative error of 0.1 %.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are valid")
}

/// When a request should have gone out, and when it did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    pub due: Nanos,
    pub sent: Nanos,
}

/// Counts of replies, and the histogram of their latencies.
pub struct Counts {
    /// From the moment a request was due to the read that completed its reply. Errors included:
    /// a server that fails fast must not look fast, and one that fails slow must look slow.
    pub latency: Histogram<u64>,
    /// From the moment the generator sent it (or began to connect for it) to the moment the kernel
    /// received the last byte of its reply: without the generator's own delays at both ends.
    pub served: Histogram<u64>,
    pub misses: u64,
    pub errors: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            latency: histogram(),
            served: histogram(),
            misses: 0,
            errors: 0,
        }
    }
}

impl Counts {
    fn add(&mut self, latency: Nanos, served: Nanos, verdict: Verdict) {
        self.latency.saturating_record(latency.0);
        self.served.saturating_record(served.0);
        match verdict {
            Verdict::Ok => {}
            Verdict::Miss => self.misses += 1,
            Verdict::Error => self.errors += 1,
        }
    }
}

/// The window of a run that is measured: requests due in it count, whenever they are answered.
pub struct Tally {
    pub begin: Nanos,
    /// Moves back when the run is cut short.
    pub end: Nanos,
    pub whole: Counts,
    /// Replies since the last interval report, in or out of the window.
    pub interval: Counts,
    /// From the moment a request was due to the moment the generator turned to it: its own delay,
    /// which no server can be blamed for.
    pub lag: Histogram<u64>,
    pub reconnects: u64,
    /// Replies that came within the window, whenever they were due: what the server achieved.
    pub replies_in_window: u64,
}

impl Tally {
    pub fn of_window(begin: Nanos, end: Nanos) -> Self {
        Self {
            begin,
            end,
            whole: Counts::default(),
            interval: Counts::default(),
            lag: histogram(),
            reconnects: 0,
            replies_in_window: 0,
        }
    }

    pub fn turned_to(&mut self, due: Nanos, now: Nanos) {
        if self.covers(due) {
            self.lag.saturating_record((now - due).0);
        }
    }

    /// Counts a reply that was read at `now`.
    pub fn answered(&mut self, request: Request, received: Nanos, now: Nanos, verdict: Verdict) {
        let (latency, served) = (now - request.due, received - request.sent);
        self.interval.add(latency, served, verdict);
        self.replies_in_window += u64::from(self.covers(now));
        if self.covers(request.due) {
            self.whole.add(latency, served, verdict);
        }
    }

    fn covers(&self, time: Nanos) -> bool {
        (self.begin..self.end).contains(&time)
    }

    /// Length of the window.
    pub fn span(&self) -> Nanos {
        self.end - self.begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_due_in_the_window_counts() {
        let mut tally = Tally::of_window(Nanos(100), Nanos(200));
        for due in [99, 100, 199, 200] {
            let request = Request {
                due: Nanos(due),
                sent: Nanos(300),
            };
            tally.answered(request, Nanos(900), Nanos(1_000), Verdict::Miss);
        }
        assert_eq!((tally.whole.latency.len(), tally.whole.misses), (2, 2));
        assert_eq!(tally.interval.latency.len(), 4);
        assert_eq!(tally.whole.served.max(), 600);
    }
}
