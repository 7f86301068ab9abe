//! Where one ledger ends: at the end of the recording, or with the next one in its place.

use std::collections::BTreeMap;
use std::path::Path;

use tailscope_signals::clock::{own_cpu_ns, unix_ns};
use tailscope_trace::{
    CauseSet, Cost, Error, Existing, LedgerWriter, Metadata, Sealing, Summary, Totals,
};

use super::Recorder;
use crate::keeping::row_bytes;
use crate::machine;
use crate::options::{Listener, Progress, RecordError};

/// What was counted from the begin of the recording until some moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Sums {
    seen: u64,
    lost: BTreeMap<String, u64>,
    cpu_ns: u64,
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
    ledger: LedgerWriter,
    summary: Summary,
}

impl Closing {
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
        self.ledger.finish(self.summary)
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
    pub fn turn(&mut self, next: LedgerWriter) -> Option<Closing> {
        let closing = if self.book.output.is_ledger() {
            let closing = self.end_ledger();
            self.clock.restart();
            closing
        } else {
            // Another recorder may have what came so far: up to the last moment, so the look comes last.
            self.sum_up();
            self.clock.restart();
            self.look_aloud();
            None
        };
        self.book.output.begin(next);
        closing
    }

    /// Takes what came since the last look; what goes wrong is a notice.
    fn look_aloud(&mut self) {
        if let Err(e) = self.look() {
            self.notices.say(e.to_string());
        }
    }

    /// Ends the ledger: rows from now on go nowhere.
    pub fn end_ledger(&mut self) -> Option<Closing> {
        self.look_aloud();
        let sealed = self.book.output.totals();
        self.row_bytes = row_bytes(sealed.rows, sealed.bytes).or(self.row_bytes);
        let ledger = self.book.output.end();
        let summary = self.sum_up();
        ledger.map(|ledger| Closing { ledger, summary })
    }

    /// Ends the recording: takes what is left, seals it, and writes down what was lost and what
    /// it cost. `listener` hears of that last look too.
    pub fn finish(mut self, listener: &mut impl Listener) -> Result<Progress, RecordError> {
        self.kernel.dismiss_sdk();
        self.kernel.detach_probes();
        let looked = self.look();
        listener.look(&self.book.live);
        let progress = self.progress();
        let summary = self.sum_up();
        let Self {
            kernel, sdk, book, ..
        } = self;
        drop((sdk, kernel));
        let totals = book.output.finish(summary)?;
        looked?;
        Ok(Progress {
            bytes: totals.bytes,
            ..progress
        })
    }

    /// What was counted since the present ledger began.
    fn sum_up(&mut self) -> Summary {
        let now = Sums {
            seen: self.seen(),
            lost: self.lost(),
            cpu_ns: own_cpu_ns() - self.cpu_at_start,
        };
        let before = std::mem::replace(&mut self.before, now.clone());
        let since = |name: &String, count: u64| {
            count.saturating_sub(before.lost.get(name).copied().unwrap_or(0))
        };
        Summary {
            ended_ns: unix_ns(),
            seen: now.seen.saturating_sub(before.seen),
            lost: now
                .lost
                .iter()
                .map(|(name, count)| (name.clone(), since(name, *count)))
                .collect(),
            cost: Cost {
                cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
                max_rss_bytes: machine::max_resident_bytes(),
            },
        }
    }
}
