//! A recording between two phases: no program of the kernel is loaded, and its ledger goes on later.

use tailscope_process::owner::start_of;
use tailscope_signals::clock::{Clock, own_cpu_ns, unix_ns};
use tailscope_trace::{Overhead, Summary};

use super::counts::{Counted, not_rows};
use super::rotate::Sums;
use super::{Closing, Recorder};
use crate::notices::Notices;
use crate::options::{Options, Progress, RecordError};
use crate::pipeline::RowPipeline;
use crate::resolved::ResolvedProbes;
use crate::stacks::StackPipeline;
use crate::{Live, Process};

/// What a recording keeps while nothing is recorded.
pub struct Paused {
    pipeline: RowPipeline,
    resolved: Vec<ResolvedProbes>,
    notices: Notices,
    past: Summary,
    /// Our CPU time that is accounted for.
    cpu_ns: u64,
    /// The times of a ledger go on as they began.
    clock: Clock,
    /// As of the recorder that went.
    counts: Counted,
    /// The processes that were watched, and when they began, in the kernel's ticks.
    watched: Vec<(u32, u64)>,
}

impl Recorder {
    /// Takes the last rows, seals them, and detaches from everything, as it does at the end. The
    /// ledger stays open. The second value says what went wrong with the last rows.
    ///
    /// Requests that are under way are lost, as they are when a recording begins.
    pub fn pause(mut self) -> (Paused, Result<(), RecordError>) {
        let taken = self.take_the_last();
        let sealed = self.pipeline.output.seal().map_err(RecordError::from);
        let watched = self.processes.iter();
        let watched = watched
            .filter_map(|pid| {
                let start = start_of(*pid)?;
                let known = self.starts.get(pid);
                known
                    .is_none_or(|known| *known == start)
                    .then_some((*pid, start))
            })
            .collect();
        let counts = self.counted();
        let summary = self.sum_up(counts.spans);
        let cpu_ns = self.cpu_at_start + self.before.cpu_ns;
        self.past.add(summary);
        let paused = Paused {
            pipeline: self.pipeline,
            resolved: self.resolved,
            notices: self.notices,
            past: self.past,
            cpu_ns,
            clock: self.clock,
            counts,
            watched,
        };
        (paused, taken.and(sealed))
    }
}

impl Paused {
    /// The processes that were watched and still run. Another that has the number of one is none of them.
    pub fn processes(&self) -> impl Iterator<Item = Process> {
        let still = |(pid, start): &&(u32, u64)| start_of(*pid) == Some(*start);
        self.watched
            .iter()
            .filter(still)
            .map(|(pid, _)| Process { pid: *pid })
    }

    /// Loads the programs again. Nobody is recorded yet.
    ///
    /// # Errors
    /// What [`Recorder::start`] says; the recording can still be [finished](Self::finish).
    pub fn resume(mut self, options: &Options) -> Result<Recorder, (Box<Self>, RecordError)> {
        let without_ledger = Options {
            ledger: None,
            ..options.clone()
        };
        let resolved = std::mem::take(&mut self.resolved);
        let mut recorder = match Recorder::start(&without_ledger, resolved) {
            Ok(recorder) => recorder,
            Err(why) => return Err((Box::new(self), why)),
        };
        recorder.pipeline = self.pipeline;
        recorder.pipeline.forget_numbers();
        recorder.pipeline.sampler.pause();
        recorder.clock = self.clock;
        recorder.clock.refine();
        recorder.notices = self.notices;
        recorder.past = self.past;
        recorder.cpu_at_start = self.cpu_ns;
        recorder.begin_phase();
        match recorder.tell_what_to_keep() {
            Ok(()) => Ok(recorder),
            Err(why) => Err((Box::new(recorder.pause().0), why)),
        }
    }

    /// What the recorder that went had counted.
    #[must_use]
    pub fn counted(&self) -> &Counted {
        &self.counts
    }

    /// The statistics so far.
    #[must_use]
    pub fn live(&self) -> &Live {
        &self.pipeline.live
    }

    /// Has nobody else get rows any more.
    pub fn untap(&mut self) {
        self.pipeline.tap = None;
    }

    /// Ends the ledger: what is recorded later goes nowhere.
    pub fn end_ledger(&mut self) -> Option<Closing> {
        let mut summary = std::mem::take(&mut self.past);
        summary.ended_ns = unix_ns();
        let cpu_ns = own_cpu_ns();
        summary.cost.cpu_ns += cpu_ns.saturating_sub(self.cpu_ns);
        self.cpu_ns = cpu_ns;
        let ledger = self.pipeline.output.end();
        let stacks = self.pipeline.stacks.as_mut().map(StackPipeline::renew);
        ledger.map(|ledger| Closing {
            ledger,
            summary,
            stacks,
        })
    }

    /// How a budget of overhead was held, for the ledger.
    pub fn note_overhead(&mut self, overhead: Overhead) {
        self.past.overhead = Some(overhead);
    }

    /// Seals the ledger.
    ///
    /// # Errors
    /// Those of the ledger.
    pub fn finish(self) -> Result<Progress, RecordError> {
        let Self {
            pipeline, mut past, ..
        } = self;
        past.ended_ns = unix_ns();
        past.cost.cpu_ns += own_cpu_ns().saturating_sub(self.cpu_ns);
        let total = pipeline.live.total();
        let progress = Progress {
            rows: pipeline.rows,
            p50_ns: total.quantile(0.5),
            p99_ns: total.quantile(0.99),
            lost: past.lost.values().sum(),
            not_rows: not_rows([&past.uncovered]),
            ..Progress::default()
        };
        let totals = pipeline.output.finish(past)?;
        Ok(Progress {
            bytes: totals.bytes,
            ..progress
        })
    }
}

impl Recorder {
    /// What the phases before have counted is theirs; the CPU time since the last is this one's.
    fn begin_phase(&mut self) {
        self.before = Sums::of_rows(self.pipeline.rows);
        self.sum_up(self.seen());
        self.before.cpu_ns = 0;
    }
}
