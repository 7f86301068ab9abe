//! Holds a budget of overhead: says when an observer attaches to a program and when it rests, and
//! what that has cost.
//!
//! The caller attaches and detaches. It says when it has done so, and asks what comes next:
//!
//! 1. [`Budget::begin`], then attach.
//! 2. Observe for [`Budget::attached_for`], detach, and say so ([`Budget::detached`]).
//! 3. Ask [`Budget::next`] until it says [`Next::Attach`]. Then say that the rest is over
//!    ([`Budget::rested`]), attach, and go on with 2.

use std::time::{Duration, Instant};

use crate::duty_cycle::{DutyCycle, Spent};
use crate::phases::{Moment, Phase};
use crate::program::Program;
use crate::statistics::Estimate;

/// The shortest phase, with the time to attach and to detach, and how much of it at least is observed.
pub const SHORTEST: Duration = Duration::from_millis(1_200);
const SHORTEST_OBSERVED: Duration = Duration::from_millis(300);

/// What comes next for an observer that rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It rests on.
    Rest,
    /// It attaches now.
    Attach,
    /// The time is over.
    Over,
}

/// A budget that is being held.
#[derive(Debug)]
pub struct Budget {
    program: Program,
    cycle: DutyCycle,
    /// How long it all takes, if somebody said so.
    duration: Option<Duration>,
    began: Instant,
    /// When this phase began, and what the program had done by then.
    since: Instant,
    before: Moment,
    is_attached: bool,
    /// The phase with the observer that has ended last, and how long it was. `None`: it says nothing.
    with: Option<Phase>,
    with_for: Duration,
    attached: Duration,
    count: u64,
}

impl Budget {
    /// To be made right before the observer attaches for the first time.
    #[must_use]
    pub fn begin(program: Program, cycle: DutyCycle, duration: Option<Duration>) -> Self {
        let now = Instant::now();
        Self {
            before: program.now(),
            program,
            cycle,
            duration,
            began: now,
            since: now,
            is_attached: true,
            with: None,
            with_for: Duration::ZERO,
            attached: Duration::ZERO,
            count: 0,
        }
    }

    /// Since it began.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// For how long it was attached so far, and how many phases of that have ended.
    #[must_use]
    pub fn attached(&self) -> (Duration, u64) {
        let now = match self.is_attached {
            true => self.since.elapsed(),
            false => Duration::ZERO,
        };
        (self.attached + now, self.count)
    }

    /// For how long it observes now that it is attached: attaching took some of the phase.
    #[must_use]
    pub fn attached_for(&self) -> Duration {
        let whole = self.cycle.with(self.left());
        whole
            .saturating_sub(self.since.elapsed())
            .max(SHORTEST_OBSERVED)
    }

    /// It has detached. From now on the program is these processes: a phase is that of the same ones
    /// from its first moment to its last.
    pub fn detached(&mut self, pids: &[u32]) {
        let with = self.program.now().since(&self.before);
        self.attached += with.length();
        self.count += 1;
        self.is_attached = false;
        (self.with, self.with_for) = (Some(with), with.length());
        self.program.follow(pids);
        (self.since, self.before) = (Instant::now(), self.program.now());
    }

    /// The rest is over, and so is the pair of phases; one that was cut short says nothing.
    pub fn rested(&mut self) {
        let next = self.next();
        let after = self.program.now();
        if let Some(with) = self.with.take().filter(|_| next != Next::Rest) {
            self.cycle.add(with, after.since(&self.before));
        }
        self.is_attached = next != Next::Over;
        (self.since, self.before) = (Instant::now(), after);
    }

    /// What could not be predicted at the begin was predicted in this rest: of this program. Hits were
    /// counted for that, so this pair of phases says nothing.
    pub fn predict(&mut self, program: Program, slowdown: Option<Estimate>) {
        self.program = program;
        self.cycle.predict(slowdown);
        self.with = None;
    }

    /// Whether anything is predicted.
    #[must_use]
    pub fn is_predicted(&self) -> bool {
        self.cycle.is_predicted()
    }

    /// Whether the shortest phases cost more than the budget already.
    #[must_use]
    pub fn is_too_small(&self) -> bool {
        self.cycle.is_too_small()
    }

    /// What comes next, now that it rests.
    #[must_use]
    pub fn next(&self) -> Next {
        match self.left() {
            Some(Duration::ZERO) => Next::Over,
            // What is left is too short for another phase.
            Some(left) if self.cycle.with(Some(left)) < SHORTEST => Next::Rest,
            // With the time to attach and to detach.
            _ if self.since.elapsed() >= self.cycle.without(self.with_for) => Next::Attach,
            _ => Next::Rest,
        }
    }

    /// What is left, if somebody said how long it all takes.
    fn left(&self) -> Option<Duration> {
        let duration = self.duration?;
        Some(duration.saturating_sub(self.elapsed()))
    }

    /// What it has cost so far.
    #[must_use]
    pub fn spent(&self) -> Spent {
        let (attached, _) = self.attached();
        let whole = self.elapsed().max(attached);
        self.cycle.spent(attached.div_duration_f64(whole))
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    /// A budget of 1 % for this process, with an observer that costs `slowdown`.
    fn begin(slowdown: f64, duration: Option<Duration>) -> Budget {
        let (program, ()) = Program::seen_during(&[std::process::id()], false, || ());
        let cycle = DutyCycle::new(0.01, Some(Estimate::exact(slowdown)));
        Budget::begin(program, cycle, duration)
    }

    fn rest(budget: &mut Budget) -> Next {
        let begin = Instant::now();
        loop {
            match budget.next() {
                Next::Rest => sleep(Duration::from_millis(5)),
                next => {
                    budget.rested();
                    return next;
                }
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "it rests on");
        }
    }

    #[test]
    fn it_rests_for_as_long_as_the_phase_before_was_too_long() {
        let mut budget = begin(0.02, None);
        sleep(Duration::from_millis(50));
        budget.detached(&[std::process::id()]);
        let resting = Instant::now();
        assert_eq!(budget.next(), Next::Rest);
        assert_eq!(rest(&mut budget), Next::Attach);
        // Half of the time may be attached.
        assert!(resting.elapsed() >= Duration::from_millis(45));
        let (attached, phases) = budget.attached();
        assert!(attached >= Duration::from_millis(50) && phases == 1);
        let share = budget.spent().share;
        assert!((0.1..0.6).contains(&share), "{share}");
    }

    #[test]
    fn where_the_rest_of_the_time_is_too_short_it_does_not_attach_again() {
        let mut budget = begin(0.02, Some(Duration::from_millis(300)));
        assert!(budget.attached_for() >= SHORTEST_OBSERVED);
        budget.detached(&[std::process::id()]);
        assert_eq!(rest(&mut budget), Next::Over);
        assert!(budget.elapsed() >= Duration::from_millis(300));
    }
}
