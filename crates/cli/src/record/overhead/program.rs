//! The program that is recorded, and how much it works.

use anyhow::Result;
use tailscope_cost::phases::Moment;
use tailscope_cost::target::Target;
use tailscope_record::Process;

use crate::cost::Progress;
use crate::subject::Subject;

/// A program that makes fewer read and write calls than this for each of its waits works in other ways.
const CALLS_A_WAIT: f64 = 0.5;

/// The processes that `-p` names, with those that they have made.
pub struct Program<'a> {
    subject: &'a Subject,
    /// What shows how much it works.
    progress: Progress,
}

impl<'a> Program<'a> {
    /// Sees what it does while something else is done, and so what shows its work: its read and write
    /// calls, or its waits where it only receives and sends.
    pub fn seen_during<T>(
        subject: &'a Subject,
        does: impl FnOnce() -> Result<T>,
    ) -> Result<(Self, T)> {
        let mut program = Self {
            subject,
            progress: Progress::Calls,
        };
        let read = |target: &Target| {
            [Progress::Calls, Progress::Waits].map(|progress| progress.read(target).unwrap_or(0.0))
        };
        let [calls, waits] = read(&program.target());
        let done = does()?;
        let [calls_then, waits_then] = read(&program.target());
        if calls_then - calls < CALLS_A_WAIT * (waits_then - waits) {
            program.progress = Progress::Waits;
        }
        Ok((program, done))
    }

    /// What it has done and used so far.
    pub fn now(&self) -> Moment {
        let target = self.target();
        // Where it can't be read there is none, and the overhead stays a prediction.
        let work = self.progress.read(&target).unwrap_or(0.0);
        Moment::read(&target, work)
    }

    /// Whether a process that `-p` names still runs.
    pub fn lives(&self) -> bool {
        let mut roots = self.subject.pids.iter();
        roots.any(|pid| (Process { pid: *pid }).lives())
    }

    fn target(&self) -> Target {
        let mut pids = self.subject.pids.clone();
        if !self.subject.no_children {
            let descendants = |pid: &u32| Process { pid: *pid }.descendants();
            let made = self.subject.pids.iter().flat_map(descendants);
            pids.extend(made.map(|process| process.pid));
        }
        Target { pids }
    }
}
