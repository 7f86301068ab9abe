//! A budget of overhead: the agent is attached for a part of the time (`overhead` in `[record]`).
//!
//! The recorder rests and attaches again between two rounds. A scrape waits until that is done.

use std::time::{Duration, Instant};

use tailscope_cost::Estimate;
use tailscope_cost::budget::{Budget, Next};
use tailscope_cost::duty_cycle::DutyCycle;
use tailscope_cost::program::Program;
use tailscope_record::{Options, Process};
use tailscope_trace::Overhead;

use super::parts::options;
use super::processes::watch_again;
use super::{Agent, AgentError};

/// How often it tries again to predict, in rests: counting hits takes a second.
const PREDICT_EVERY: Duration = Duration::from_secs(60);

/// What attaching would cost, by what is known of this machine.
pub struct Predicted {
    /// How much more time the same work takes while it is attached. `None`: not known.
    pub slowdown: Option<Estimate>,
    /// The same in words.
    pub said: String,
}

/// Predicts what recording these processes costs.
pub type Predict = dyn Fn(&Options, &[Process]) -> Predicted;

/// A budget that is held.
pub(super) struct Held {
    allowed: f64,
    budget: Budget,
    /// When the present phase ends.
    until: Instant,
    /// When it was last tried to predict.
    predicted_at: Option<Instant>,
    /// As of the begin of the present ledger.
    before: Times,
}

/// How long it all took, how much of that it was attached, in how many phases.
type Times = (Duration, Duration, u64);

impl Held {
    pub(super) fn allowed(&self) -> f64 {
        self.allowed
    }

    /// How it was held since it is.
    pub(super) fn overhead(&self) -> Overhead {
        self.between(Times::default(), self.times())
    }

    /// How it was held in the present ledger, which ends.
    pub(super) fn of_ledger(&mut self) -> Overhead {
        let before = self.before;
        self.before = self.times();
        self.between(before, self.before)
    }

    fn times(&self) -> Times {
        let (attached, phases) = self.budget.attached();
        (self.budget.elapsed().max(attached), attached, phases)
    }

    fn between(&self, from: Times, to: Times) -> Overhead {
        let spent = self.budget.spent();
        let three = |of: Estimate| [of.value, of.low, of.high];
        let whole = to.0.saturating_sub(from.0);
        let attached = to.1.saturating_sub(from.1).min(whole);
        Overhead {
            budget: self.allowed,
            whole_ns: whole.as_nanos() as u64,
            attached_ns: attached.as_nanos() as u64,
            phases: to.2 - from.2,
            predicted: spent.predicted.map(three),
            measured: spent.overall.map(three),
        }
    }
}

impl Agent {
    /// Holds the budget that the configuration has, from now on. It rests while hits are counted: nobody
    /// would take the rows.
    pub(super) fn begin_budget(&mut self) -> Result<(), AgentError> {
        // A ledger that is being begun is for a recorder that is there.
        self.settle();
        self.held = None;
        let Some(allowed) = self.config.record.overhead() else {
            return Ok(());
        };
        let (pids, processes) = self.watched();
        self.detach();
        let (program, predicted) = Program::seen_during(&pids, false, || self.predict(&processes));
        (self.say)(&format!(
            "holding an overhead of {} %: {}",
            allowed * 100.0,
            predicted.said
        ));
        let cycle = DutyCycle::new(allowed, predicted.slowdown);
        let budget = Budget::begin(program, cycle, None);
        self.check(allowed, &budget);
        let now = Instant::now();
        self.held = Some(Held {
            allowed,
            until: now + budget.attached_for(),
            budget,
            predicted_at: (!processes.is_empty()).then_some(now),
            before: Times::default(),
        });
        self.attach()
    }

    /// Says where a budget can't be held.
    fn check(&self, allowed: f64, budget: &Budget) {
        if budget.is_too_small() {
            (self.say)(&format!(
                "an overhead of {} % is less than the shortest phases cost: allow more",
                allowed * 100.0
            ));
        }
    }

    fn detach(&mut self) {
        if let Err(e) = self.recording.rest() {
            self.failed_to_write(&e.to_string());
        }
    }

    fn watched(&self) -> (Vec<u32>, Vec<Process>) {
        let recorder = self.recording.recorder();
        let pids = recorder.map(|recorder| recorder.processes().iter().copied().collect());
        let pids: Vec<u32> = pids.unwrap_or_default();
        let processes = pids.iter().map(|pid| Process { pid: *pid }).collect();
        (pids, processes)
    }

    fn predict(&self, processes: &[Process]) -> Predicted {
        if processes.is_empty() {
            return Predicted {
                slowdown: None,
                said: "no process runs yet for which it could be predicted".to_owned(),
            };
        }
        (self.predict)(&options(&self.config, None), processes)
    }

    /// Detaches or attaches, if that is due.
    pub(super) fn hold_budget(&mut self) -> Result<(), AgentError> {
        let Some(held) = &mut self.held else {
            return Ok(());
        };
        if self.recording.recorder().is_some() {
            // As above.
            if Instant::now() >= held.until && self.rotating.is_none() {
                self.rest();
            }
            return Ok(());
        }
        match held.budget.next() {
            Next::Rest => Ok(()),
            Next::Attach | Next::Over => self.attach(),
        }
    }

    fn rest(&mut self) {
        let (pids, processes) = self.watched();
        self.detach();
        let Some(held) = &mut self.held else { return };
        held.budget.detached(&pids);
        let is_recent = |at: Instant| at.elapsed() < PREDICT_EVERY;
        let is_due = !held.predicted_at.is_some_and(is_recent);
        if held.budget.is_predicted() || processes.is_empty() || !is_due {
            return;
        }
        let (program, predicted) = Program::seen_during(&pids, false, || self.predict(&processes));
        let Some(mut held) = self.held.take() else {
            return;
        };
        held.budget.predict(program, predicted.slowdown);
        held.predicted_at = Some(Instant::now());
        self.check(held.allowed, &held.budget);
        self.held = Some(held);
    }

    /// Attaches after a rest, to the processes that were watched and those that were started since.
    pub(super) fn attach(&mut self) -> Result<(), AgentError> {
        if self.recording.recorder().is_some() {
            return Ok(());
        }
        if let Some(held) = &mut self.held {
            held.budget.rested();
        }
        let options = options(&self.config, None);
        if let Some((counted, watched)) = self.recording.resume(&options)? {
            self.counts.before.add(&counted);
            self.counts.before.take_away(&self.recording.counted());
            if let Some(recorder) = self.recording.attached() {
                watch_again(recorder, &self.config, &self.say, &watched)?;
            }
            self.search()?;
        }
        if let Some(held) = &mut self.held {
            held.until = Instant::now() + held.budget.attached_for();
        }
        Ok(())
    }
}
