//! A recording between two phases.

use anyhow::{Error, Result};
use tailscope_record::{Options, Paused, Process, Progress, RecordError};
use tailscope_trace::Overhead;

use super::{Session, Subject, failure, watch_all};

/// A recording that is attached to nothing, and can go on.
pub struct Resting {
    paused: Paused,
    options: Options,
}

impl Session {
    /// Detaches from everything. The second value says what went wrong with the last rows. Not for a
    /// recording that has started a command.
    pub fn pause(self) -> (Resting, Result<(), RecordError>) {
        let (paused, taken) = self.recorder.pause();
        let options = self.options;
        (Resting { paused, options }, taken)
    }
}

impl Resting {
    /// The processes that were recorded and still run.
    pub fn processes(&self) -> Vec<Process> {
        self.paused.processes().collect()
    }

    /// Attaches again: to the processes that were recorded, and those that they have made by now.
    ///
    /// # Errors
    /// The programs can't be loaded again, or a process can't be watched; what was recorded can be
    /// [finished](Self::finish).
    pub fn resume(self, args: &Subject) -> Result<Session, (Box<Self>, Error)> {
        let mut all = self.processes();
        let roots: Vec<u32> = all.iter().map(|process| process.pid).collect();
        let Self { paused, options } = self;
        let resumed = paused.resume(&options);
        let mut session = match resumed {
            Ok(recorder) => Session {
                recorder,
                options,
                launched: None,
            },
            Err((paused, why)) => {
                let paused = *paused;
                return Err((Box::new(Self { paused, options }), failure(why)));
            }
        };
        if !args.no_children {
            all.extend(Process::descendants_of(&roots));
        }
        let watched = watch_all(&all, &roots, args.no_children, |process| {
            session.recorder.watch(process).map_err(failure)
        });
        match watched {
            Ok(()) => Ok(session),
            Err(why) => Err((Box::new(session.pause().0), why)),
        }
    }

    /// How a budget of overhead was held, for the ledger.
    pub fn note_overhead(&mut self, overhead: Overhead) {
        self.paused.note_overhead(overhead);
    }

    /// Seals the ledger.
    pub fn finish(self) -> Result<Progress, RecordError> {
        self.paused.finish()
    }
}
