//! Where one ledger ends: at the end of the recording, or with the next one in its place.

use std::collections::BTreeMap;
use std::path::Path;

use tailscope_signals::clock::{own_cpu_ns, unix_ns};
use tailscope_trace::{
    CauseSet, Cost, Error, Existing, LedgerWriter, Metadata, Overhead, Sealing, Summary, Totals,
};

use super::Recorder;
use crate::machine;
use crate::options::{Listener, Progress, RecordError};
use crate::retention::row_bytes;
use crate::stacks::StackPipeline;

/// What was counted from the begin of the recording until some moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    seen: u64,
    rows: u64,
    lost: BTreeMap<String, u64>,
    uncovered: BTreeMap<String, u64>,
    adjusted: BTreeMap<String, u64>,
    pub(super) cpu_ns: u64,
}

impl Sums {
    /// Before anything was counted but these rows.
    pub(super) fn of_rows(rows: u64) -> Self {
        Self {
            rows,
            ..Self::default()
        }
    }

    /// How many spans ended until the present ledger ends, by the count from before its last poll.
    ///
    /// Spans end meanwhile, and their rows are in this ledger though that count lacks them. A row
    /// that was taken is a span that was seen, so those belong to this ledger too, and the next
    /// one begins after them. Were they counted in the next, it would have more rows than spans.
    fn seen_until(&self, counted: u64, rows: u64) -> u64 {
        counted.max(self.seen + rows.saturating_sub(self.rows))
    }
}

/// What the next ledger is begun with. Beginning one writes and syncs files: that is for a thread
/// that has the time.
#[derive(Debug)]
pub struct NextLedger {
    metadata: Metadata,
    measured: CauseSet,
}

impl NextLedger {
    /// Begins the ledger in this folder, which must hold none.
    ///
    /// # Errors
    /// Those of [`LedgerWriter::create`].
    pub fn create(mut self, folder: &Path) -> Result<LedgerWriter, Error> {
        self.metadata.started_ns = unix_ns();
        LedgerWriter::create(
            folder,
            self.metadata,
            self.measured,
            Sealing::default(),
            Existing::Refuse,
        )
    }
}

/// A ledger that gets no more rows and is not sealed yet.
pub struct Closing {
    pub(super) ledger: LedgerWriter,
    pub(super) summary: Summary,
    pub(super) stacks: Option<StackPipeline>,
}

impl Closing {
    /// How a budget of overhead was held while it was written.
    pub fn note_overhead(&mut self, overhead: Overhead) {
        self.summary.overhead = Some(overhead);
    }

    /// The ledger's folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.ledger.folder()
    }

    /// Seals it, on any thread.
    ///
    /// # Errors
    /// Those of [`LedgerWriter::finish`].
    pub fn seal(self) -> Result<Totals, Error> {
        let stacks = self.stacks;
        let named = stacks.map_or(Ok(()), |stacks| stacks.finish(&self.ledger));
        let totals = self.ledger.finish(self.summary)?;
        named.map(|()| totals)
    }
}

impl Recorder {
    /// What the next ledger is begun with.
    #[must_use]
    pub fn next_ledger(&self) -> NextLedger {
        NextLedger {
            metadata: self.metadata.clone(),
            measured: self.measured,
        }
    }

    /// How far the wall clock has moved, in ns, since the present ledger began: by a step, or
    /// while the machine was suspended. Times in a ledger go on as they began.
    #[must_use]
    pub fn clock_step_ns(&self) -> i64 {
        self.clock.step_ns()
    }

    /// Goes on in another ledger, with no row between. Its times are those of the wall clock as it
    /// is now. What was counted goes to the one that ends, if there is one.
    pub fn rotate(&mut self, next: LedgerWriter) -> Option<Closing> {
        let closing = if self.pipeline.output.is_ledger() {
            let closing = self.close_ledger();
            self.clock.restart();
            closing
        } else {
            // Another recorder may have what came so far: up to the last moment, so the poll comes last.
            self.sum_up(self.seen());
            self.clock.restart();
            self.poll_and_report();
            self.before.rows = self.pipeline.rows;
            None
        };
        self.pipeline.output.begin(next);
        closing
    }

    /// Takes what came since the last poll; what goes wrong is a notice.
    fn poll_and_report(&mut self) {
        if let Err(e) = self.poll() {
            self.notices.say(e.to_string());
        }
    }

    /// Ends the ledger: rows from now on go nowhere.
    pub fn end_ledger(&mut self) -> Option<Closing> {
        // One poll: what another would find, the recorder that takes this one's place has too.
        let seen = self.seen();
        self.poll_and_report();
        self.settle_requests();
        if let Err(e) = self.join_stacks() {
            self.notices.say(e.to_string());
        }
        self.close(seen)
    }

    /// Enters requests that wait for their names.
    fn settle_requests(&mut self) {
        let (_, names) = self.kernel.ended();
        self.pipeline
            .open(&mut self.clock, self.steal.as_ref(), &names)
            .settle_requests(true);
    }

    fn close_ledger(&mut self) -> Option<Closing> {
        let seen = self.seen();
        self.poll_and_report();
        self.close(seen)
    }

    fn close(&mut self, seen: u64) -> Option<Closing> {
        let sealed = self.pipeline.output.totals();
        self.row_bytes = row_bytes(sealed.rows, sealed.bytes).or(self.row_bytes);
        let ledger = self.pipeline.output.end();
        let mut summary = std::mem::take(&mut self.past);
        summary.add(self.sum_up(seen));
        let stacks = self.pipeline.stacks.as_mut().map(StackPipeline::renew);
        ledger.map(|ledger| Closing {
            ledger,
            summary,
            stacks,
        })
    }

    /// Ends the recording: takes what is left, seals it, and writes down what was lost and what
    /// it cost. `listener` hears of that last poll too.
    pub fn finish(mut self, listener: &mut impl Listener) -> Result<Progress, RecordError> {
        let taken = self.take_the_last();
        self.show_code();
        listener.show(&self.pipeline.live);
        let progress = self.progress();
        let summary = self.sum_up(self.seen());
        let Self {
            kernel,
            sdk,
            mut pipeline,
            mut past,
            ..
        } = self;
        drop((sdk, kernel));
        let stacks = pipeline.stacks.take().zip(pipeline.output.ledger());
        let named = stacks.map_or(Ok(()), |(stacks, ledger)| stacks.finish(ledger));
        past.add(summary);
        let totals = pipeline.output.finish(past)?;
        taken?;
        named?;
        Ok(Progress {
            bytes: totals.bytes,
            ..progress
        })
    }

    /// Ends all probes and answers, and takes what there is.
    pub(super) fn take_the_last(&mut self) -> Result<(), RecordError> {
        self.kernel.sdk().detach_all();
        self.kernel.detach_probes();
        let finished = self.finish_answers(true);
        let polled = self.poll();
        self.finish_requests();
        let joined = self.join_stacks();
        polled.and(finished).and(joined.map_err(RecordError::from))
    }

    /// Enters the requests whose answers count as complete because nothing more is recorded.
    fn finish_requests(&mut self) {
        let (_, names) = self.kernel.ended();
        let mut batch = self
            .pipeline
            .open(&mut self.clock, self.steal.as_ref(), &names);
        for finished in self.requests.finish() {
            batch.enter_request(finished);
        }
        batch.settle_requests(true);
    }

    /// What was counted since the present ledger began; `seen` is of before its last poll.
    pub(super) fn sum_up(&mut self, seen: u64) -> Summary {
        let now = Sums {
            seen: self.before.seen_until(seen, self.pipeline.rows),
            rows: self.pipeline.rows,
            lost: self.lost(),
            uncovered: self.uncovered(),
            adjusted: self.adjusted(),
            cpu_ns: own_cpu_ns() - self.cpu_at_start,
        };
        let before = std::mem::replace(&mut self.before, now.clone());
        let since = |now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>| {
            let grown = |(name, count): (&String, &u64)| {
                let earlier = before.get(name).copied().unwrap_or(0);
                (name.clone(), count.saturating_sub(earlier))
            };
            now.iter().map(grown).collect()
        };
        Summary {
            ended_ns: unix_ns(),
            seen: now.seen.saturating_sub(before.seen),
            lost: since(&now.lost, &before.lost),
            uncovered: since(&now.uncovered, &before.uncovered),
            adjusted: since(&now.adjusted, &before.adjusted),
            cost: Cost {
                cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
                max_rss_bytes: machine::max_resident_bytes(),
            },
            overhead: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ledger_has_more_rows_than_spans_and_together_they_have_all() {
        // Spans that ended until the count, and rows that were taken by the end of the look after
        // it: a few more end meanwhile.
        let mut before = Sums::default();
        let mut told = Vec::new();
        for (counted, rows) in [(100, 103), (110, 110), (110, 112), (300, 240), (310, 250)] {
            let now = Sums {
                seen: before.seen_until(counted, rows),
                rows,
                ..Sums::default()
            };
            told.push((now.seen - before.seen, now.rows - before.rows));
            before = now;
        }
        assert!(told.iter().all(|(seen, rows)| seen >= rows), "{told:?}");
        assert_eq!(told[0], (103, 103));
        assert_eq!(told[2], (2, 2));
        // From the fourth on some were not kept.
        assert_eq!(before.seen, 310);
    }

    #[test]
    fn the_spans_of_a_phase_are_counted_from_none() {
        // Its kernel counts 100; the phases before wrote 500 rows, and it has written 10.
        let before = Sums::of_rows(500);
        assert_eq!(before.seen_until(0, 500), 0);
        assert_eq!(before.seen_until(100, 510), 100);
        assert_eq!(before.seen_until(9, 510), 10);
    }

    #[test]
    fn spans_that_are_not_kept_are_seen_once() {
        let before = Sums {
            seen: 1_000,
            rows: 10,
            ..Sums::default()
        };
        assert_eq!(before.seen_until(2_000, 20), 2_000);
    }
}
