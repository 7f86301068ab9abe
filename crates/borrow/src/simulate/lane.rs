//! One core at work: requests one after the other, and batch beside them.

use super::outcome::Sums;
use super::{Model, Policy, Request};

/// The state of both lanes after a request.
#[derive(Debug)]
pub(super) struct Lane {
    model: Model,
    begin_ns: u64,
    /// When the request lane is free.
    pub free_ns: u64,
    /// Until when batch runs beside requests; in the past: it naps.
    beside_until_ns: u64,
    busy_ns: u64,
    beside_ns: u64,
    alone_ns: u64,
}

/// How a request was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Served {
    /// When it began to run.
    pub start_ns: u64,
    /// When it was done.
    pub end_ns: u64,
}

impl Lane {
    pub(super) fn new(model: Model, begin_ns: u64) -> Self {
        Self {
            model,
            begin_ns,
            free_ns: begin_ns,
            beside_until_ns: 0,
            busy_ns: 0,
            beside_ns: 0,
            alone_ns: 0,
        }
    }

    /// Serves the next request. `next_ns`: when the one after it comes. `on`: whether the policy `slo`
    /// lends.
    pub(super) fn serve(
        &mut self,
        request: Request,
        next_ns: Option<u64>,
        policy: Policy,
        on: Option<bool>,
    ) -> Served {
        let start_ns = request.arrival_ns.max(self.free_ns);
        let was_idle = self.idle(request.arrival_ns, policy);
        let nobody_waits = next_ns.is_none_or(|next| next > start_ns);
        self.beside_until_ns = self.until(start_ns, policy, on, was_idle, nobody_waits);
        let end_ns = self.run(start_ns, request.work_ns);
        Served { start_ns, end_ns }
    }

    /// Lets batch have the idle time before an arrival; whether there was some.
    fn idle(&mut self, arrival_ns: u64, policy: Policy) -> bool {
        let first = self.busy_ns == 0;
        let Some(gap_ns) = arrival_ns
            .checked_sub(self.free_ns)
            .filter(|g| *g > 0 || first)
        else {
            return false;
        };
        if policy != Policy::Nothing {
            let napped = self.beside_until_ns < self.free_ns;
            let wake_ns = if napped { self.model.wake_ns } else { 0 };
            self.alone_ns += gap_ns.saturating_sub(wake_ns);
        }
        true
    }

    /// Until when batch runs beside the request that starts now.
    fn until(
        &self,
        start_ns: u64,
        policy: Policy,
        on: Option<bool>,
        was_idle: bool,
        nobody_waits: bool,
    ) -> u64 {
        let leave = self.model.leave_ns;
        // Batch can leave only as fast as it checks.
        let budgeted = |budget: u64| start_ns + budget.max(leave);
        let goes_on = start_ns < self.beside_until_ns;
        match policy {
            Policy::Nothing => 0,
            Policy::Idle | Policy::Slo(_) if on == Some(true) => u64::MAX,
            Policy::Idle | Policy::Slo(_) if was_idle => start_ns + leave,
            // A phase of `slo` has just ended.
            Policy::Slo(_) if self.beside_until_ns == u64::MAX => start_ns + leave,
            Policy::Fixed(budget) if was_idle => budgeted(budget),
            Policy::Refresh(budget) if was_idle || (goes_on && nobody_waits) => budgeted(budget),
            Policy::Dynamic(budget) if was_idle || (goes_on && nobody_waits) => {
                budgeted(self.in_time(budget))
            }
            _ => self.beside_until_ns,
        }
    }

    /// The time in which a request loses so much: budget × ref_IPC / (ref_IPC − LC_IPC).
    fn in_time(&self, budget: u64) -> u64 {
        let lost = 1.0 - self.model.overlap_speed;
        if lost > 0.0 {
            (budget as f64 / lost) as u64
        } else {
            u64::MAX / 4
        }
    }

    /// Runs a request to its end.
    fn run(&mut self, start_ns: u64, work_ns: u64) -> u64 {
        let speed = self.model.overlap_speed;
        let beside_ns = self.beside_until_ns.saturating_sub(start_ns);
        let done_beside = beside_ns as f64 * speed;
        let end_ns = if done_beside >= work_ns as f64 && speed > 0.0 {
            start_ns + (work_ns as f64 / speed).round() as u64
        } else {
            start_ns
                .saturating_add(beside_ns)
                .saturating_add(work_ns - (done_beside.round() as u64).min(work_ns))
        };
        self.busy_ns += end_ns - start_ns;
        self.beside_ns += self.beside_until_ns.min(end_ns).saturating_sub(start_ns);
        self.free_ns = end_ns;
        end_ns
    }

    /// What came of it; its requests waited so long for others.
    pub(super) fn sums(&self, waited_ns: u64) -> Sums {
        // On one CPU the time beside a request is the batch's alone.
        let shares_cpu = self.model.overlap_speed <= 0.0;
        Sums {
            time_ns: self.free_ns - self.begin_ns,
            waited_ns,
            requests_ns: self.busy_ns - if shares_cpu { self.beside_ns } else { 0 },
            batch_ns: self.alone_ns + self.beside_ns,
            beside_ns: self.beside_ns,
        }
    }
}
