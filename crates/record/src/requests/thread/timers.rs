//! The timers of a thread: when they run out, and whether one let it go on.

use super::Thread;

/// Programs round the time until their next timer up to this, if it is long.
const ROUNDED_NS: u64 = 1_000_000;
/// A busy loop looks at its timers at least this often. What it goes on with later has another reason.
const LOOKS_EVERY_NS: u64 = 5_000_000;

/// When a timer runs out, as its thread has said.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    at: u64,
    /// By how much that may have been rounded up.
    rounded: u64,
}

impl Thread {
    /// It waits for sockets, and for at most that long; 0: without a limit that is known.
    pub(in crate::requests) fn waits_at_most(&mut self, since: u64, most: u64) {
        let due = || Due {
            at: since.saturating_add(most),
            rounded: ROUNDED_NS.min(most / 4),
        };
        self.due = (most != 0).then(due);
    }

    /// It may go on with something else than its timers.
    pub(in crate::requests) fn forget_timers(&mut self) {
        self.timer = None;
        self.due = None;
    }

    /// A timer that let it go on had a reason: the next one may follow soon.
    pub(in crate::requests) fn goes_on_at_timer(&mut self, at: u64) {
        if self.timer.is_some() {
            self.rests_until = at + ROUNDED_NS;
        }
    }

    /// Whether a wait that a timer ended was not for that: `is_short`, and no rest of a longer one, which
    /// had ended too early because its time was rounded.
    pub(in crate::requests) fn only_looks(&mut self, is_short: bool, woken: u64) -> bool {
        if !is_short {
            self.rests_until = woken + ROUNDED_NS;
        }
        is_short && (self.timer.is_none() || woken > self.rests_until)
    }

    /// Its wait for something to do has ended, by a timer at that moment if it was one.
    pub(in crate::requests) fn end_wait(&mut self, timer: Option<u64>) {
        self.timer = timer;
        let is_this = |due: &mut Due| timer.is_some_and(|timer| due.at <= timer + due.rounded);
        self.due.take_if(is_this);
    }

    /// When a timer has let it go on with what it did so far: the end of its wait, or the moment when one
    /// had run out while it did something else.
    pub(in crate::requests) fn take_timer(&mut self) -> Option<u64> {
        let begun = self.run.first().map_or(self.run_from, |run| run.from);
        let has_just_run_out = |due: &mut Due| {
            due.at <= begun + due.rounded && begun <= due.at.saturating_add(LOOKS_EVERY_NS)
        };
        let due = self.due.take_if(has_just_run_out);
        due.map(|due| due.at.min(begun)).or(self.timer)
    }

    /// Whether one has run out, as it had said when it waited.
    pub(in crate::requests) fn has_timer_at(&self, now: u64) -> bool {
        self.timer.is_some() || self.due.is_some_and(|due| due.at <= now + due.rounded)
    }
}
