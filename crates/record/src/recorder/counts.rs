//! What a recording has counted so far.

use std::collections::BTreeMap;

use tailscope_sdk_server::Server;
use tailscope_signals::meters::Meters;
use tailscope_trace::Totals;

use super::Recorder;
use crate::options::Progress;

/// Counts by their names, as `ledger.json` has them.
type Counts = BTreeMap<String, u64>;

fn named<const N: usize>(counts: [(&str, u64); N]) -> Counts {
    Counts::from(counts.map(|(name, count)| (name.to_owned(), count)))
}

/// Requests that are no rows, in words.
pub(super) fn not_rows<const N: usize>(uncovered: [&Counts; N]) -> Vec<(&'static str, u64)> {
    let of = |name: &str| uncovered.iter().filter_map(|counts| counts.get(name)).sum();
    let reasons = [
        ("pipelined", of("pipelined")),
        ("over HTTP/2 or QUIC", of("multiplexed")),
        ("without an answer", of("unanswered")),
    ];
    reasons
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .collect()
}

/// What a recorder has counted so far.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// Rows.
    pub rows: u64,
    /// Spans that ended, as [`Recorder::seen`].
    pub spans: u64,
    /// As [`Recorder::lost`].
    pub lost: BTreeMap<String, u64>,
}

impl Counted {
    /// Adds what another one has counted.
    pub fn add(&mut self, more: &Self) {
        self.rows = self.rows.wrapping_add(more.rows);
        self.spans = self.spans.wrapping_add(more.spans);
        for (name, count) in &more.lost {
            let sum = self.lost.entry(name.clone()).or_default();
            *sum = sum.wrapping_add(*count);
        }
    }

    /// What a recorder counted before it was the present one, so that the sum with all that it counts is
    /// right again. Alone this may be below zero, and wraps around.
    pub fn take_away(&mut self, counted: &Self) {
        self.rows = self.rows.wrapping_sub(counted.rows);
        self.spans = self.spans.wrapping_sub(counted.spans);
        for (name, count) in &counted.lost {
            let sum = self.lost.entry(name.clone()).or_default();
            *sum = sum.wrapping_sub(*count);
        }
    }
}

impl Recorder {
    /// What it has counted so far.
    #[must_use]
    pub fn counted(&self) -> Counted {
        Counted {
            rows: self.rows(),
            spans: self.seen(),
            lost: self.lost(),
        }
    }

    /// How it goes.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let total = self.pipeline.live.total();
        Progress {
            elapsed: self.started.elapsed(),
            rows: self.pipeline.rows,
            p50_ns: total.quantile(0.5),
            p99_ns: total.quantile(0.99),
            bytes: self.pipeline.output.totals().bytes,
            lost: [self.lost(), self.past.lost.clone()]
                .iter()
                .flat_map(Counts::values)
                .sum(),
            not_rows: not_rows([&self.uncovered(), &self.past.uncovered]),
        }
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.pipeline.rows
    }

    /// What of the present ledger is on disk.
    #[must_use]
    pub fn sealed(&self) -> Totals {
        self.pipeline.output.totals()
    }

    /// Rows and measurements that were lost so far, by the place that lost them.
    #[must_use]
    pub fn lost(&self) -> Counts {
        let kernel = self.kernel.losses();
        let sdk = self.sdk.as_ref().map(Server::losses).unwrap_or_default();
        named([
            ("ring_full", kernel.rows),
            ("slices", kernel.slices),
            ("forgotten", self.requests.missed.forgotten),
            ("incomplete", self.requests.missed.incomplete),
            ("stacks", kernel.stacks + self.lost_stacks()),
            ("threads", kernel.threads),
            ("nesting", kernel.nesting),
            ("events", kernel.events),
            ("sockets", kernel.sockets),
            ("processes", kernel.processes),
            ("abandoned", kernel.abandoned),
            ("depth", kernel.depth),
            ("names", kernel.names),
            ("culprits", kernel.blamed),
            ("recursion", kernel.recursion),
            ("strangers", sdk.unwatched),
            ("refused", sdk.refused),
            ("region_full", sdk.full),
            ("region_malformed", sdk.malformed),
        ])
    }

    /// Samples of stacks that found no room on this side.
    fn lost_stacks(&self) -> u64 {
        self.pipeline
            .stacks
            .as_ref()
            .map_or(0, |stacks| stacks.lost)
    }

    /// Rows that are there and were mended so far, by what was wrong with them.
    #[must_use]
    pub fn adjusted(&self) -> Counts {
        named([
            ("overdrawn", self.pipeline.overdrawn),
            ("switches", self.kernel.losses().switches),
        ])
    }

    /// Requests that are no rows, or whose rows say too little, so far, by the reason.
    #[must_use]
    pub fn uncovered(&self) -> Counts {
        let (counted, missed) = (self.kernel.uncovered(), self.requests.missed);
        named([
            ("pipelined", counted.pipelined),
            ("multiplexed", counted.multiplexed + missed.multiplexed),
            ("encrypted", counted.encrypted + missed.encrypted),
            ("handshakes", missed.handshakes),
            ("unanswered", counted.unanswered + missed.unanswered),
            ("continued", counted.continued + missed.continued),
            ("ambiguous", missed.ambiguous),
            ("unnamed", self.pipeline.request_names.unnamed),
        ])
    }

    /// Spans that ended so far, kept or not; under `--sample` those from the kernel are an estimate.
    #[must_use]
    pub fn seen(&self) -> u64 {
        let (kernel, sdk) = self.ended();
        (kernel as f64 / self.sample.clamp(f64::MIN_POSITIVE, 1.0)) as u64 + sdk
    }

    /// Metered spans that ended, kept or not.
    pub(super) fn metered(&self) -> u64 {
        let (kernel, sdk) = self.ended();
        kernel + (sdk as f64 * self.sample) as u64
    }

    /// Metered spans that ended in the kernel's programs, and all that ended in the SDK.
    fn ended(&self) -> (u64, u64) {
        let kernel: u64 = self
            .kernel
            .own_meters()
            .iter()
            .filter_map(|map| Meters::map(map).ok())
            .map(|meters| meters.spans())
            .sum();
        let sdk = self.sdk.as_ref().map_or(0, Server::spans);
        (kernel + self.pipeline.requests_seen, sdk)
    }
}
