//! Which slow request has a window written, and when: windows are spread over time, and no request is
//! in two of them.

use std::collections::VecDeque;

use crate::request::Request;

/// A minute, in ns.
const MINUTE_NS: u64 = 60_000_000_000;
/// Slow requests that are remembered until a window holds them; the others count as passed over.
const MOST_WAITING: usize = 1 << 16;
/// A request that took longer than a window reaches back has one all the same, if it ended no longer
/// ago than this, in ns.
const JUST_NOW_NS: u64 = 1_000_000_000;

/// A slow request that no window holds yet.
#[derive(Debug, Clone)]
pub(super) struct Due {
    pub(super) request: Request,
    /// From which latency on a request was slow, in ns.
    pub(super) slow_ns: u64,
}

/// Slow requests on their way into windows.
#[derive(Debug)]
pub(super) struct Cooldown {
    /// Between two windows at least, in ns; `None`: none is written for slow requests.
    pause_ns: Option<u64>,
    not_before: u64,
    /// The slowest of those that wait.
    slowest: Option<Due>,
    /// The begins and ends of those that no window holds, in ns.
    waiting: VecDeque<(u64, u64)>,
    /// Until when the latest window goes, in ns.
    held_until: u64,
    passed_over: u64,
}

impl Cooldown {
    /// At most so many windows a minute, at even distances at least.
    pub(super) fn new(per_minute: u32) -> Self {
        Self {
            pause_ns: MINUTE_NS.checked_div(per_minute.into()),
            not_before: 0,
            slowest: None,
            waiting: VecDeque::new(),
            held_until: 0,
            passed_over: 0,
        }
    }

    /// A request was slow. One that a window holds already needs no other.
    pub(super) fn add(&mut self, request: Request, slow_ns: u64) {
        if request.end() < self.held_until {
            return;
        }
        if self.waiting.len() == MOST_WAITING {
            self.waiting.pop_front();
            self.passed_over += 1;
        }
        self.waiting.push_back((request.begin(), request.end()));
        let slower = |due: &Due| request.latency() > due.request.latency();
        if self.slowest.as_ref().is_none_or(slower) {
            self.slowest = Some(Due { request, slow_ns });
        }
    }

    /// The request for which a window from `from` to now is to be written now.
    pub(super) fn due(&mut self, from: u64, now: u64) -> Option<&Due> {
        let gone = |(begin, end): (u64, u64)| begin < from && end < now.saturating_sub(JUST_NOW_NS);
        while self.waiting.front().is_some_and(|times| gone(*times)) {
            self.waiting.pop_front();
            self.passed_over += 1;
        }
        let is_gone = |due: &mut Due| gone((due.request.begin(), due.request.end()));
        self.slowest.take_if(is_gone);
        let is_time = self.pause_ns.is_some() && now >= self.not_before;
        self.slowest.as_ref().filter(|_| is_time)
    }

    /// A window was given to the writer that holds what ended before `to`.
    pub(super) fn held(&mut self, to: u64) {
        self.held_until = to;
        self.waiting.retain(|(_, end)| *end >= to);
        self.slowest.take_if(|due| due.request.end() < to);
    }

    /// And it was written for a slow request.
    pub(super) fn spent(&mut self, now: u64) {
        self.not_before = now + self.pause_ns.unwrap_or_default();
    }

    /// A window could not be written, so nobody knows what windows hold.
    pub(super) fn failed(&mut self) {
        self.held_until = 0;
    }

    /// Before when what ended is in an earlier window, in ns.
    pub(super) fn held_until(&self) -> u64 {
        self.held_until
    }

    /// Slow requests that were and are in no window.
    pub(super) fn passed_over(&self) -> u64 {
        self.passed_over + self.waiting.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probed::span;

    const SECOND: u64 = 1_000_000_000;
    const KEEP: u64 = 10 * SECOND;

    /// What a recorder does: looks every 50 ms, with slow requests by when they ended and how long they
    /// took. Gives back the windows: for which request's end, and when.
    fn windows(per_minute: u32, slow: &[(u64, u64)]) -> (Vec<(u64, u64)>, u64) {
        let mut cooldown = Cooldown::new(per_minute);
        let mut written = Vec::new();
        let mut slow = slow.iter().peekable();
        for now in (0..120 * SECOND).step_by(SECOND as usize / 20) {
            // Seen one look late, as the recorder does.
            while let Some((end, ns)) = slow.next_if(|(end, _)| end + SECOND / 20 < now) {
                cooldown.add(span(0, end - ns, *end, 7), 1);
            }
            let due = cooldown.due(now.saturating_sub(KEEP), now);
            if let Some(end) = due.map(|due| due.request.end()) {
                written.push((end, now));
                cooldown.held(now);
                cooldown.spent(now);
            }
        }
        (written, cooldown.passed_over())
    }

    #[test]
    fn windows_of_a_burst_are_spread_over_the_minute() {
        let burst: Vec<_> = (0..100)
            .map(|n| (20 * SECOND + n * SECOND / 100, 5_000))
            .collect();
        let (written, passed_over) = windows(4, &burst);
        // The rest of the burst is older than a window reaches when the next one is allowed.
        assert_eq!(written.len(), 1, "{written:?}");
        assert!(passed_over > 80, "{passed_over}");
        let always: Vec<_> = (1..1000).map(|n| (n * SECOND / 10, 5_000)).collect();
        let (written, _) = windows(4, &always);
        assert_eq!(written.len(), 7, "{written:?}");
        let pauses = written.windows(2).map(|pair| pair[1].1 - pair[0].1);
        assert!(pauses.into_iter().all(|pause| pause >= 15 * SECOND));
    }

    #[test]
    fn a_request_that_a_window_holds_has_no_other() {
        // The second ends before the first one's window, and is seen after it was written.
        let (written, passed_over) = windows(60, &[(SECOND, 900), (SECOND + 40_000_000, 900)]);
        assert_eq!((written.len(), passed_over), (1, 0), "{written:?}");
    }

    #[test]
    fn of_those_that_wait_the_slowest_has_the_window_while_it_is_in_memory() {
        let slow = [
            (SECOND, 9),
            (12 * SECOND, 700),
            (13 * SECOND, 900),
            (14 * SECOND, 800),
        ];
        let (written, passed_over) = windows(4, &slow);
        let ends: Vec<_> = written.iter().map(|(end, _)| *end).collect();
        assert_eq!((ends, passed_over), (vec![SECOND, 13 * SECOND], 0));
    }

    #[test]
    fn a_request_longer_than_a_window_has_one_all_the_same() {
        let (written, passed_over) = windows(4, &[(40 * SECOND, 30 * SECOND)]);
        assert_eq!((written.len(), passed_over), (1, 0));
    }

    #[test]
    fn none_is_written_where_none_is_allowed() {
        let (written, passed_over) = windows(0, &[(SECOND, 900)]);
        assert_eq!((written.len(), passed_over), (0, 1));
    }
}
