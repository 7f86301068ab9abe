//! A program that is observed in phases, and how much it works.

use tailscope_record::Process;

use crate::phases::{Moment, Work};
use crate::target::Target;

/// A program that makes fewer read and write calls than this for each of its waits works in other ways.
const CALLS_A_WAIT: f64 = 0.5;

/// The processes that are observed.
#[derive(Debug)]
pub struct Program {
    pids: Vec<u32>,
    /// Whether those count that they make.
    children: bool,
    /// Whether its waits show how much it works, and not its read and write calls.
    by_waits: bool,
}

impl Program {
    /// Sees what it does while something else is done, and so what shows its work: its read and write
    /// calls, or its waits where it only receives and sends.
    pub fn seen_during<T>(pids: &[u32], children: bool, does: impl FnOnce() -> T) -> (Self, T) {
        let mut program = Self {
            pids: pids.to_vec(),
            children,
            by_waits: false,
        };
        let target = program.target();
        let (calls, used) = (target.io(), target.read());
        let done = does();
        let (calls_then, used_then) = (target.io(), target.read());
        let calls = calls_then
            .zip(calls)
            .map_or(0, |(then, before)| then.0.saturating_sub(before.0));
        let waits = used_then.since(&used).waits;
        program.by_waits = (calls as f64) < CALLS_A_WAIT * waits as f64;
        (program, done)
    }

    /// From now on it is these processes.
    pub(crate) fn follow(&mut self, pids: &[u32]) {
        pids.clone_into(&mut self.pids);
    }

    /// What it has done and used so far.
    pub(crate) fn now(&self) -> Moment {
        let target = self.target();
        let work = match self.by_waits {
            true => Work::Waits,
            // Where they can't be read there is no progress, and the overhead stays a prediction.
            false => Work::Number(target.io().map_or(0.0, |(calls, _)| calls as f64)),
        };
        Moment::read(&target, work)
    }

    fn target(&self) -> Target {
        let mut pids = self.pids.clone();
        if self.children {
            let made = Process::descendants_of(&self.pids);
            pids.extend(made.iter().map(|made| made.pid));
            pids.sort_unstable();
            pids.dedup();
        }
        Target { pids }
    }
}
