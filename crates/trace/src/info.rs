//! `ledger.json`: what is known of a recording beside its rows.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use tailscope_output::Folder;

use crate::{CauseSet, Error, LEDGER_JSON, Link, Result};

/// The version of `docs/reference/schema.md` that this crate writes.
const SCHEMA_VERSION: u32 = 1;

/// What is known when a recording begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metadata {
    /// Version of the program that records.
    pub tailscope: String,
    /// Begin of the recording, in ns since the Unix epoch.
    pub started_ns: i64,
    /// The machine that is recorded.
    pub machine: Machine,
    /// Where times come from.
    pub clock: Clock,
    /// The arguments of `record`.
    pub command: Vec<String>,
    /// The `--span` sources.
    pub spans: Vec<String>,
    /// The probability with which a request is metered: 1.0 for every one.
    pub sample: f64,
    /// The probability with which a metered span is written at random: 1.0 for every one.
    pub keep: f64,
    /// The quantile of its kind's latest spans above which every span is written.
    pub tail: Option<f64>,
    /// Bytes a second that the ledger may grow by.
    pub budget: Option<u64>,
    /// For each measurement the mechanism that this kernel offered.
    pub ladder: BTreeMap<String, Rung>,
    /// The hardware counters that were asked for, in the order of their columns.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<Counter>,
    /// What joins spans with other records, in the order of the columns, which come after the
    /// counters'.
    #[serde(skip)]
    pub links: Vec<Link>,
    /// How stacks are sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<StackSampling>,
}

/// How stacks are sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StackSampling {
    /// The time that a sample on the CPU stands for, in ns. One of a wait has its own.
    pub period_ns: u64,
}

/// A hardware counter: a column of the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counter {
    /// The column.
    pub column: String,
    /// The event, as it was asked for.
    pub event: String,
    /// Whether some spans have it; else it is null throughout.
    pub counted: bool,
}

/// The machine that is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// Its name; also the ledger's `host=` partition, there with `_` for what a folder's name
    /// can't hold.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The architecture: `x86_64`, `aarch64`.
    pub arch: String,
    /// CPUs online.
    pub cpus: u32,
    /// The CPU's model name.
    pub model: String,
}

/// Where times come from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Clock {
    /// `tsc`, `cntvct` or `monotonic`.
    pub source: String,
    /// Ticks a second.
    pub hz: f64,
}

/// The mechanism that a measurement took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Rung {
    /// The mechanism; `None` where this machine can't measure it.
    pub rung: Option<String>,
    /// Why not a better one, or empty.
    pub why: String,
}

/// What is known when a recording ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// End of the recording, in ns since the Unix epoch.
    pub ended_ns: i64,
    /// Spans that ended, kept or not.
    pub seen: u64,
    /// For each place that can lose: how many rows or events it lost.
    pub lost: BTreeMap<String, u64>,
    /// Requests that are no rows, or whose rows say too little, by the reason.
    pub uncovered: BTreeMap<String, u64>,
    /// Rows that are there and were mended, by what was wrong.
    pub adjusted: BTreeMap<String, u64>,
    /// What the recorder itself cost.
    pub cost: Cost,
    /// How a budget of overhead was held, if there was one.
    pub overhead: Option<Overhead>,
}

impl Summary {
    /// Adds what a later part of the same recording has counted.
    pub fn add(&mut self, later: Self) {
        let add = |sums: &mut BTreeMap<String, u64>, more: BTreeMap<String, u64>| {
            for (name, count) in more {
                *sums.entry(name).or_default() += count;
            }
        };
        self.ended_ns = later.ended_ns;
        self.seen += later.seen;
        add(&mut self.lost, later.lost);
        add(&mut self.uncovered, later.uncovered);
        add(&mut self.adjusted, later.adjusted);
        self.cost.cpu_ns += later.cost.cpu_ns;
        self.cost.max_rss_bytes = self.cost.max_rss_bytes.max(later.cost.max_rss_bytes);
        self.overhead = later.overhead.or(self.overhead.take());
    }
}

/// How a budget of overhead was held: the recorder was attached for a part of the time. Shares of the
/// program's time for the same work: 0.01 is 1 %; each as the figure and its 95 % interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Overhead {
    /// What was allowed.
    pub budget: f64,
    /// How long it all took, in ns.
    pub whole_ns: u64,
    /// For how much of that the recorder was attached, with the time to attach and to detach.
    pub attached_ns: u64,
    /// How many times it was.
    pub phases: u64,
    /// What was predicted of the whole time.
    pub predicted: Option<[f64; 3]>,
    /// What was measured.
    pub measured: Option<[f64; 3]>,
}

/// What the recorder itself cost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// CPU time in ns.
    pub cpu_ns: u64,
    /// The most memory that was resident, in bytes.
    pub max_rss_bytes: u64,
}

/// Whether a recording was ended properly.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It is going on, or it was cut off by force.
    Recording,
    /// It was ended; everything that was kept is sealed.
    Done,
}

/// The whole of `ledger.json`. What is known only at the end is `None` until then.
#[derive(Debug, Serialize)]
pub(crate) struct LedgerInfo {
    /// The version of `docs/reference/schema.md`.
    pub schema: u32,
    /// Whether the recording was ended.
    pub state: State,
    /// What was known at the begin.
    #[serde(flatten)]
    pub metadata: Metadata,
    /// End of the recording, in ns since the Unix epoch.
    pub ended_ns: Option<i64>,
    /// Names of the causes that are not null in this ledger.
    pub causes: Vec<String>,
    /// Rows in sealed files.
    pub rows: Option<u64>,
    /// Bytes of sealed files.
    pub bytes: Option<u64>,
    /// Sealed files.
    pub files: Option<u64>,
    /// Spans that ended, kept or not.
    pub seen: Option<u64>,
    /// For each place that can lose: how many rows or events it lost.
    pub lost: Option<BTreeMap<String, u64>>,
    /// Requests that are no rows, or whose rows say too little, by the reason.
    pub uncovered: Option<BTreeMap<String, u64>>,
    /// Rows that are there and were mended, by what was wrong.
    pub adjusted: Option<BTreeMap<String, u64>>,
    /// What the recorder itself cost.
    pub cost: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
}

impl LedgerInfo {
    pub(crate) fn recording(metadata: Metadata, measured: CauseSet) -> LedgerInfo {
        LedgerInfo {
            schema: SCHEMA_VERSION,
            state: State::Recording,
            metadata,
            ended_ns: None,
            causes: measured
                .iter()
                .map(|cause| cause.name().to_owned())
                .collect(),
            rows: None,
            bytes: None,
            files: None,
            seen: None,
            lost: None,
            uncovered: None,
            adjusted: None,
            cost: None,
            overhead: None,
        }
    }

    /// Replaces the `ledger.json` in `folder`: a reader sees the old one or the new one, whole.
    pub(crate) fn write(&self, folder: &Folder) -> Result<()> {
        let path = folder.path().join(LEDGER_JSON);
        let unfinished = format!("{LEDGER_JSON}.tmp");
        let mut text = serde_json::to_vec_pretty(self).map_err(|source| Error::Info {
            path: path.clone(),
            source,
        })?;
        text.push(b'\n');
        let text = checksummed(text);
        let written = folder
            .create(&unfinished)
            .and_then(|mut file| {
                file.write_all(&text)?;
                file.sync_all()
            })
            .and_then(|()| folder.rename(&unfinished, LEDGER_JSON))
            .and_then(|()| folder.sync());
        written.map_err(|source| {
            // Best effort: the folder may be full or gone, and the first error tells more.
            let _ = folder.remove(&unfinished);
            Error::losing_io("write", &path, 0, source)
        })
    }
}

/// What stands for the checksum of `ledger.json` while it is computed.
const ROOM: &str = "00000000";

/// The text of an object with its CRC32 as the last key: that of the whole text, with `ROOM` in
/// place of the checksum. The key also says that the ledger's files have checksums.
fn checksummed(mut text: Vec<u8>) -> Vec<u8> {
    let end = text.trim_ascii_end().len().saturating_sub(1);
    let rest = text.split_off(text[..end].trim_ascii_end().len());
    text.extend_from_slice(b",\n  \"crc32\": \"");
    let room = text.len()..text.len() + ROOM.len();
    text.extend_from_slice(ROOM.as_bytes());
    text.push(b'"');
    text.extend_from_slice(&rest);
    let checksum = format!("{:08x}", crc32fast::hash(&text));
    text[room].copy_from_slice(checksum.as_bytes());
    text
}
