//! What the recorder keeps, as its policy says and as the flow of rows allows.

use std::time::Instant;

use tailscope_signals::retention::Retention;

use super::Recorder;
use crate::Policy;
use crate::options::RecordError;
use crate::retention::{Flow, TailSampler, row_bytes};

impl Recorder {
    /// Tells all who write rows which.
    pub(super) fn tell_what_to_keep(&mut self) -> Result<(), RecordError> {
        self.pipeline.has_steered();
        for (source, retention) in self.pipeline.retentions() {
            self.kernel.keep(source, retention)?;
        }
        if let Some(sdk) = &self.sdk {
            let hz = u128::from(self.clock.hz());
            let cycles = |ns: u64| (u128::from(ns) * hz / 1_000_000_000) as u64;
            sdk.keep(|name| {
                let retention = self.pipeline.sampler.of(name);
                Retention {
                    always_from: retention.always_from.map(cycles),
                    ..retention
                }
            });
        }
        Ok(())
    }

    /// Decides anew what to keep, from what came since the last time.
    pub(super) fn steer(&mut self) -> Result<(), RecordError> {
        if !self.pipeline.sampler.steers() {
            return Ok(());
        }
        let flow = Flow {
            at: Instant::now(),
            spans: self.metered(),
            rows: self.pipeline.rows,
        };
        let sealed = self.pipeline.output.totals();
        let row_bytes = row_bytes(sealed.rows, sealed.bytes).or(self.row_bytes);
        self.pipeline.sampler.steer(flow, row_bytes);
        self.tell_what_to_keep()
    }

    /// Keeps other rows from now on.
    pub fn keep(&mut self, policy: Policy) -> Result<(), RecordError> {
        self.metadata.keep = policy.others;
        self.metadata.tail = policy.tail;
        self.metadata.budget = policy.budget;
        self.pipeline.sampler = TailSampler::new(policy);
        if let Some(sdk) = &mut self.sdk {
            sdk.keep_unknown(self.pipeline.sampler.of_unknown());
        }
        self.tell_what_to_keep()
    }
}
