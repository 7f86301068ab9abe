//! Looking after the ledgers: when the next one begins, what became of the last, the quota.
//!
//! The ledger worker's thread creates the next ledger while the recorder fills the present one. Then the recorder
//! takes the rows that are in the rings and changes the writer. The worker seals the old ledger. Names keep their handles. A `ledger.json` has the counts since the last change, so the
//! ledgers of an agent add up.

use std::time::{Duration, Instant};

use tailscope_record::Closing;

use super::Agent;
use crate::config::Config;
use crate::ledger_worker::{Done, Job};
use crate::rotation::{Present, Reason, Rotation};

/// How long it waits after a ledger that could not be begun.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

impl Agent {
    /// What is due about once a second.
    pub(super) fn routine(&mut self) {
        self.tell();
        if let Some(recorder) = self.recording.recorder() {
            let may_have_rows = |pid| recorder.may_have_rows(pid);
            self.by_process.lock().keep(may_have_rows);
        }
        if let (Some(why), Some(otlp)) = (self.exported.take_trouble(), &self.config.otlp) {
            let endpoint = &otlp.endpoint;
            (self.say)(&format!(
                "can't export spans to {endpoint}: {why}; recording continues"
            ));
        }
        let Some(recorder) = self.recording.recorder() else {
            return; // a ledger ends when the recorder is back
        };
        let Config { ledger, .. } = &self.config;
        let rotation = Rotation {
            size: *ledger.rotate_size.as_ref(),
            age: *ledger.rotate_age.as_ref(),
        };
        let present = Present {
            began: self.began,
            now: Instant::now(),
            bytes: recorder.sealed().bytes,
            step_ns: recorder.clock_step_ns(),
        };
        if let Some(reason) = rotation.due(&present) {
            self.rotate(reason);
        }
        if present.bytes != std::mem::replace(&mut self.shrunk_at, present.bytes) {
            self.shrink();
        }
    }

    /// Has the next ledger begun. The present one goes on until that is done.
    pub(super) fn rotate(&mut self, reason: Reason) {
        let too_early = self.not_before.is_some_and(|at| Instant::now() < at);
        let recorder = self.recording.recorder();
        if let Some(recorder) = recorder.filter(|_| self.rotating.is_none() && !too_early) {
            self.rotating = Some(reason);
            let next = Box::new(recorder.next_ledger());
            self.ledger_worker.give(Job::Begin(next));
        }
    }

    pub(super) fn shrink(&mut self) {
        if !std::mem::replace(&mut self.shrinking, true) {
            let quota = *self.config.ledger.quota.as_ref();
            self.ledger_worker.give(Job::Shrink(quota));
        }
    }

    /// Handles what the ledger worker has done.
    pub(super) fn poll_ledger_worker(&mut self) {
        let done: Vec<Done> = self.ledger_worker.done().collect();
        for done in done {
            self.ledger_done(done);
        }
    }

    pub(super) fn ledger_done(&mut self, done: Done) {
        match done {
            Done::Begun(Ok(ledger)) => {
                if let Some(reason) = self.rotating.take() {
                    self.counts.turns[reason.index()] += 1;
                }
                self.began = Instant::now();
                let recorder = self.recording.attached();
                let closing = recorder.and_then(|recorder| recorder.rotate(*ledger));
                self.seal(closing);
            }
            Done::Begun(Err(why)) => {
                self.rotating = None;
                self.not_before = Some(Instant::now() + AGAIN_AFTER);
                self.failed_to_write(&format!("can't start the next ledger: {why}"));
            }
            Done::Sealed(folder, sealed) => {
                if let Err(why) = sealed {
                    self.failed_to_write(&format!("can't seal {}: {why}", folder.display()));
                }
                self.shrink();
            }
            Done::Shrunk(holding, failed) => {
                self.shrinking = false;
                self.holding = holding;
                for why in failed {
                    (self.say)(&format!("can't stay within the quota: {why}"));
                }
            }
        }
    }

    /// Has a ledger sealed that gets no more rows, if there is one.
    pub(super) fn seal(&mut self, closing: Option<Closing>) {
        let Some(mut closing) = closing else { return };
        if let Some(held) = &mut self.held {
            closing.note_overhead(held.of_ledger());
        }
        self.ledger_worker.give(Job::Seal(Box::new(closing)));
    }

    /// Waits until the ledger worker has done all that it was given, in the present folder.
    pub(super) fn settle(&mut self) {
        while self.rotating.is_some() || self.shrinking {
            match self.ledger_worker.wait() {
                Some(done) => self.ledger_done(done),
                None => return,
            }
        }
    }

    pub(super) fn failed_to_write(&mut self, why: &str) {
        self.counts.write_errors += 1;
        (self.say)(&format!("{why}; recording continues"));
        // What is over the quota may be what fills the disk.
        self.shrink();
    }
}
