//! When a window is written, and what it is to hold.

use super::Flight;
use super::cooldown::Due;
use super::writer::Job;
use crate::about::Reason;

impl Flight {
    /// Has a window written if one is asked for, or a slow request is due.
    pub(super) fn trigger(&mut self, now: u64) {
        let from = self.oldest(now);
        let due = self.cooldown.due(from, now).cloned();
        let (reason, due) = match (self.asked, due) {
            (true, _) => (Reason::Asked, None),
            (false, Some(due)) => (Reason::Slow, Some(due)),
            (false, None) => return,
        };
        // While another is being written it is tried again at the next look.
        if !self.writer.give(self.job(now, reason, due)) {
            return;
        }
        self.number += 1;
        self.cooldown.held(now);
        if reason == Reason::Slow {
            self.cooldown.spent(now);
            return;
        }
        self.asked = false;
        if let Some(control) = &mut self.control {
            control.begun(self.number);
        }
    }

    /// Since when a window that is written now holds events, in ns.
    fn oldest(&self, now: u64) -> u64 {
        let kept = self
            .newest(now)
            .saturating_sub(self.options.keep.as_nanos() as u64);
        kept.max(self.began_at)
    }

    /// The next window: with which of the past, and of which spans and processes.
    pub(super) fn job(&self, now: u64, reason: Reason, due: Option<Due>) -> Job {
        let from_ns = self.oldest(now);
        let told_until_ns = match reason {
            Reason::Slow => self.cooldown.held_until(),
            Reason::Asked | Reason::End => 0,
        };
        let slow_ns = due.as_ref().map(|due| due.slow_ns);
        let sdk = self.sdk.as_ref();
        Job {
            number: self.number + 1,
            from_ns,
            to_ns: self.newest(now),
            reason,
            slow_ns: slow_ns.or(self.judge.threshold()),
            slow_request: due.map(|due| due.request),
            told_until_ns,
            watched: self.events.watched(),
            gaps: self.gaps.clone(),
            sdk_gaps: self.sdk_gaps.clone(),
            spans: match &self.sdk {
                Some(sdk) => sdk.names().to_vec(),
                None => self
                    .options
                    .spans
                    .iter()
                    .map(|span| span.name.clone())
                    .collect(),
            },
            processes_lost: self.events.lost().processes,
            sdk_clock_off_ns: sdk.map(|sdk| sdk.clock_off_ns(from_ns)),
        }
    }
}
