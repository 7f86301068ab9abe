//! A recording between two phases: no program of the kernel is loaded, and its ledger goes on later.

use tailscope_signals::clock::unix_ns;
use tailscope_trace::{Overhead, Summary};

use super::counts::not_rows;
use super::{Recorder, rotate};
use crate::options::{Options, Progress, RecordError};
use crate::pipeline::RowPipeline;
use crate::resolved::ResolvedProbes;

/// What a recording keeps while nothing is recorded.
pub struct Paused {
    pipeline: RowPipeline,
    resolved: Vec<ResolvedProbes>,
    past: Summary,
}

impl Recorder {
    /// Takes the last rows and detaches from everything, as at the end. The ledger stays open. The second
    /// value says what went wrong with the last rows.
    ///
    /// Requests that are under way are lost, as they are at the begin of a recording.
    pub fn pause(mut self) -> (Paused, Result<(), RecordError>) {
        let taken = self.take_the_last();
        let summary = self.sum_up(self.seen());
        self.past.add(summary);
        let paused = Paused {
            pipeline: self.pipeline,
            resolved: self.resolved,
            past: self.past,
        };
        (paused, taken)
    }

    /// How a budget of overhead was held, for the ledger.
    pub fn note_overhead(&mut self, overhead: Overhead) {
        self.past.overhead = Some(overhead);
    }
}

impl Paused {
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
        recorder.past = self.past;
        // What the phases before have counted is theirs.
        recorder.before = rotate::Sums::default();
        recorder.sum_up(recorder.seen());
        match recorder.tell_what_to_keep() {
            Ok(()) => Ok(recorder),
            Err(why) => Err((Box::new(recorder.pause().0), why)),
        }
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
