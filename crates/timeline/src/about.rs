//! What a trace says of itself: JSON at the end of the file, after the events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::request::Request;

/// Why a window was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A request was slow.
    Slow,
    /// SIGUSR1 asked for it.
    Asked,
    /// The recording ended.
    End,
}

/// One CPU's events in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The CPU.
    pub cpu: u32,
    /// Where in the file they begin.
    pub offset: u64,
    /// How many there are.
    pub events: u64,
    /// From when on all are there, in ns of `CLOCK_MONOTONIC`: older ones were written over, or
    /// are older than was asked for.
    pub from_ns: u64,
    /// Events within the time asked for that newer ones had been written over.
    pub overwritten: u64,
    /// Events that had been begun and not written when the window was read.
    pub unwritten: u64,
}

/// Events that the kernel skipped, between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// After this moment, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// And before this one.
    pub to_ns: u64,
    /// How many.
    pub events: u64,
}

/// A thread's names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its own, of 15 bytes at most.
    pub name: String,
    /// Its process.
    pub process: u32,
}

/// What a trace says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The layout of the events: `TL_ABI`.
    pub abi: u32,
    /// The version that wrote it.
    pub tailscope: String,
    /// The machine that wrote it.
    #[serde(default)]
    pub host: String,
    /// How the recorder was started.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// The kernel's release.
    pub kernel: String,
    /// The machine's architecture, which numbers system calls.
    pub arch: String,
    /// Why it was written.
    pub reason: Reason,
    /// The window asked for, in ns of `CLOCK_MONOTONIC`: from here
    pub from_ns: u64,
    /// to here.
    pub to_ns: u64,
    /// What to add to it for Unix time.
    pub unix_offset_ns: i64,
    /// Above which latency a request counted as slow when it was written, in ns.
    pub slow_ns: Option<u64>,
    /// The slow request that it was written for, as it was followed while it went on.
    #[serde(default)]
    pub slow_request: Option<Request>,
    /// Requests that ended before are in an earlier window, in ns of `CLOCK_MONOTONIC`.
    #[serde(default)]
    pub told_until_ns: u64,
    /// The CPUs' events.
    pub parts: Vec<Part>,
    /// Spans that programs told of themselves, where they were asked; its CPU has no meaning.
    #[serde(default)]
    pub sdk: Option<Part>,
    /// How far, in ns, within the window the program's cycle counter and this clock were found to be from
    /// where they were expected, at most: NTP slews the one. Where spans of the SDK lie is right to a
    /// quarter of that.
    #[serde(default)]
    pub sdk_clock_off_ns: Option<u64>,
    /// Threads by their id.
    pub threads: BTreeMap<u32, Thread>,
    /// Processes by their id.
    pub processes: BTreeMap<u32, String>,
    /// Names of the code where ticks met threads, by process and address, as far as they are known.
    #[serde(default)]
    pub functions: BTreeMap<u32, BTreeMap<u64, String>>,
    /// When watched processes began, in ns of `CLOCK_MONOTONIC`, as far as they live.
    #[serde(default)]
    pub started: BTreeMap<u32, u64>,
    /// Those whose system calls, faults, receives and sends are told.
    pub watched: Vec<u32>,
    /// Names of spans from probes and of the SDK, by their number.
    #[serde(default)]
    pub spans: Vec<String>,
    /// Requests on sockets are told of; else only spans.
    #[serde(default = "yes")]
    pub sockets: bool,
    /// Interrupts' names by their number.
    pub interrupts: BTreeMap<u32, String>,
    /// What the kernel skipped within the window.
    pub gaps: Vec<Gap>,
    /// Spans of the SDK for which their process had no room.
    #[serde(default)]
    pub sdk_gaps: Vec<Gap>,
    /// Children that could not be followed, since the recording began.
    pub processes_lost: u64,
    /// By what each kind of event is told, and why not by something better.
    #[serde(rename = "ladder")]
    pub mechanisms: BTreeMap<String, (Option<String>, String)>,
}

fn yes() -> bool {
    true
}

impl About {
    /// Whether the events have this measurement, by its name.
    #[must_use]
    pub fn records(&self, measurement: &str) -> bool {
        let found = self.mechanisms.get(measurement);
        found.is_none_or(|(hook, _)| hook.is_some())
    }

    /// From when on the events of all CPUs are there.
    #[must_use]
    pub fn whole_from_ns(&self) -> u64 {
        let latest = self.all_parts().map(|part| part.from_ns).max();
        latest.unwrap_or(self.from_ns).max(self.from_ns)
    }

    /// The CPUs' events, and spans of the SDK.
    pub fn all_parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().chain(&self.sdk)
    }
}
