//! The program that is recorded, and how much it works.

use anyhow::Result;
use tailscope_cost::phases::{Moment, Work};
use tailscope_cost::target::Target;
use tailscope_record::Process;

/// A program that makes fewer read and write calls than this for each of its waits works in other ways.
const CALLS_A_WAIT: f64 = 0.5;

/// The processes that are recorded.
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
    pub fn seen_during<T>(
        processes: &[Process],
        children: bool,
        does: impl FnOnce() -> Result<T>,
    ) -> Result<(Self, T)> {
        let mut program = Self {
            pids: Vec::new(),
            children,
            by_waits: false,
        };
        program.follow(processes);
        let target = program.target();
        let (calls, used) = (target.io(), target.read());
        let done = does()?;
        let (calls_then, used_then) = (target.io(), target.read());
        let calls = calls_then
            .zip(calls)
            .map_or(0, |(then, before)| then.0.saturating_sub(before.0));
        let waits = used_then.since(&used).waits;
        program.by_waits = (calls as f64) < CALLS_A_WAIT * waits as f64;
        Ok((program, done))
    }

    /// From now on it is these processes.
    pub fn follow(&mut self, processes: &[Process]) {
        self.pids = processes.iter().map(|process| process.pid).collect();
    }

    /// What it has done and used so far.
    pub fn now(&self) -> Moment {
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
            pids.extend(
                Process::descendants_of(&self.pids)
                    .iter()
                    .map(|made| made.pid),
            );
            pids.sort_unstable();
            pids.dedup();
        }
        Target { pids }
    }
}
