//! A flight recorder that rests: it is attached to nothing, and goes on later.
//!
//! No window holds events from before a rest and from after it: what happened during the rest is not
//! known, and would look like silence. A window that is written during a rest ends where it began.

use tailscope_process::owner::start_of;
use tailscope_signals::clock::Monotonic;

use super::holding::filled;
use super::{Flight, FlightError, requests_of};
use crate::probed::Probed;

/// Since when it rests.
#[derive(Debug)]
pub(super) struct Rest {
    /// In ns.
    since: u64,
    /// The processes that are watched, and when they began, in the kernel's ticks.
    processes: Vec<(u32, u64)>,
}

impl Flight {
    /// Detaches from everything. It is to be polled all the same: windows that are due are written.
    ///
    /// Requests that are under way are lost, as when it began.
    pub fn rest(&mut self) {
        let mut processes = Vec::new();
        for pid in self.events.watched() {
            match start_of(pid) {
                Some(start) => processes.push((pid, start)),
                None => self.events.unwatch(pid),
            }
        }
        // From here on some programs are attached and others not any more.
        let since = Monotonic::now().0;
        self.events.detach();
        self.follow(since);
        // Nothing more will come of those that were answered.
        let fresh = requests_of(self.options.tier);
        let mut answered = Vec::new();
        std::mem::replace(&mut self.requests, fresh).finish(|request| answered.push(request));
        self.judge(answered);
        self.pass_over();
        self.resting = Some(Rest { since, processes });
    }

    /// Attaches again, and watches those processes that still live. What they have made since is the
    /// caller's to find.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn resume(&mut self) -> Result<(), FlightError> {
        self.events.attach()?;
        for probe in self.options.spans.iter().flat_map(|span| &span.probes) {
            self.events.attach_probe(probe)?;
        }
        // From here on their ends are seen.
        self.forget_gone();
        self.jvms.attach_again();
        // Until here some programs were attached and others not yet.
        let now = Monotonic::now().0;
        self.pass_over();
        self.resting = None;
        (self.began_at, self.looked_at) = (now, now);
        self.holding.resume(now, &filled(&self.rings, None));
        Ok(())
    }

    /// Passes over the events that there are: they show a part of what happened.
    fn pass_over(&mut self) {
        for (cpu, seen) in self.seen.iter_mut().enumerate() {
            *seen = self.rings.head(cpu);
        }
        self.requests = requests_of(self.options.tier);
        self.probed = Probed::default();
    }

    /// Stops watching processes that have ended during a rest, in which nobody sees their end.
    pub(super) fn forget_gone(&self) {
        let processes = self.resting.iter().flat_map(|rest| &rest.processes);
        let gone = processes.filter(|(pid, start)| start_of(*pid) != Some(*start));
        gone.for_each(|(pid, _)| self.events.unwatch(*pid));
    }

    /// Until when a window that is written now holds events, in ns.
    pub(super) fn newest(&self, now: u64) -> u64 {
        self.resting.as_ref().map_or(now, |rest| rest.since)
    }
}
