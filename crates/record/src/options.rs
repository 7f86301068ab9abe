//! What a recording is asked for, and what it tells: while it goes on, at its end, and where it can't.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailscope_counters::Event;
use tailscope_kernel::{Config, LoadError, SocketSpans, WatchError};
use tailscope_sdk_server::Address;
use tailscope_sdk_server::sockets::ServeError;
use tailscope_trace::Existing;

use crate::requests::Naming;
use crate::retention::Policy;
use crate::{Live, SpanSource};

/// Samples of stacks a second of each CPU, at most.
pub const MOST_STACK_RATE: u32 = 10_000;

/// What to record.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where spans come from.
    pub spans: Vec<SpanSource>,
    /// Probability that a request is metered at all.
    pub sample: f64,
    /// Which metered spans are written.
    pub keep: Policy,
    /// By which protocol spans of the source `request` are named.
    pub naming: Naming,
    /// Whether the names of those that come over TLS are looked for, in the programs' libraries.
    pub tls: bool,
    /// Whether their trace is read from the header `traceparent`.
    pub traces: bool,
    /// Hardware counters of the SDK's spans.
    pub counters: Vec<Event>,
    /// Samples of stacks a second of each CPU, of threads with an open span; `None`: no stacks.
    pub stacks: Option<u32>,
    /// What their functions are for.
    pub code_for: CodeFor,
    /// Whether the processes' children are recorded too.
    pub children: bool,
    /// Whether it tells of every program that starts on this machine, so that it can be watched.
    pub tell_programs: bool,
    /// Where a recorder of this same process listens to the SDK until this one
    /// [takes over](crate::Recorder::take_over); `None`: nowhere.
    pub takes_over: Option<Address>,
    /// Whether it is [paused](crate::Recorder::pause): it then attaches to probes more than once.
    pub pauses: bool,
    /// Whether the caller started a command and ends it: it then keeps the right to send signals.
    pub ends_command: bool,
    /// Where the ledger is written; `None`: no row is written at all.
    pub ledger: Option<Place>,
    /// The command line, for the ledger.
    pub command: Vec<String>,
}

impl Options {
    /// Whether probes may go into libraries for TLS.
    pub(crate) fn names_tls(&self) -> bool {
        self.tls && self.naming != Naming::None && self.spans.contains(&SpanSource::Request)
    }

    /// What the kernel's programs are to meter.
    #[must_use]
    pub fn kernel_config(&self) -> Config {
        let sockets = self.spans.iter().find_map(|source| match source {
            SpanSource::RecvSend => Some(SocketSpans::FromReceive),
            SpanSource::ReadySend => Some(SocketSpans::FromReady),
            SpanSource::Request => Some(SocketSpans::Slices),
            SpanSource::Sdk | SpanSource::Probes(_) => None,
        });
        Config {
            sample: of_all(self.sample),
            follow_children: self.children,
            tell_programs: self.tell_programs,
            sockets,
            probes: SpanSource::probes(&self.spans).next().is_some(),
            names: sockets == Some(SocketSpans::Slices) && self.naming != Naming::None,
            tls: self.names_tls(),
            traces: self.traces,
            headers: self.traces || matches!(self.naming, Naming::Auto | Naming::Http),
            stacks: self.stacks.map(period_ns),
        }
    }
}

/// The time that a sample on the CPU stands for, at this number of samples a second.
pub(crate) fn period_ns(rate: u32) -> u64 {
    1_000_000_000 / u64::from(rate.max(1))
}

/// A probability, of 2^32.
fn of_all(p: f64) -> u64 {
    if p >= 1.0 {
        1 << 32
    } else {
        (p * 4_294_967_296.0) as u64
    }
}

/// What functions on stacks are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeFor {
    /// A ledger: names are found when the recording ends, with functions that were inlined.
    Ledger,
    /// The ledgers of a service, which has little memory: by tables of symbols alone.
    Ledgers,
    /// A screen: names are found while it records, and there is no ledger.
    Screen,
}

impl CodeFor {
    /// Different stacks, at most.
    pub(crate) fn stacks(self) -> usize {
        match self {
            Self::Ledger | Self::Screen => 1 << 17,
            Self::Ledgers => 1 << 14,
        }
    }

    /// Bytes for the tables that callers are found by.
    pub(crate) fn tables(self) -> usize {
        match self {
            Self::Ledger | Self::Screen => 512 << 20,
            Self::Ledgers => 64 << 20,
        }
    }
}

/// A place for a ledger.
#[derive(Debug, Clone)]
pub struct Place {
    /// Its folder.
    pub folder: PathBuf,
    /// What to do with a ledger that is there.
    pub existing: Existing,
}

/// Who hears of a recording while it goes on.
pub trait Listener {
    /// After each look, twenty times a second or more: what the spans so far were like.
    fn show(&mut self, live: &Live) {
        let _ = live;
    }

    /// Once a second, and when there are `notices`: what the person should know.
    fn tell(&mut self, progress: &Progress, notices: &[String]);
}

/// A recording can't begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The kernel's programs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A process.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The SDK's socket.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] tailscope_trace::Error),
    /// A source of spans that this kernel has not.
    #[error("can't record {source_name}: {why}")]
    Source {
        /// The source.
        source_name: String,
        /// Why not, and what to use instead.
        why: String,
    },
    /// The thread that looks for the SDK.
    #[error("can't start a thread: {0}")]
    Thread(io::Error),
    /// A system call.
    #[error("poll() on the process-event ring failed: {0}")]
    Wait(io::Error),
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its time was over.
    Duration,
    /// It was told to stop.
    Stopped,
    /// No process is left.
    Exited,
}

/// How a recording goes.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Since the begin.
    pub elapsed: Duration,
    /// Rows so far.
    pub rows: u64,
    /// Median of their wall times, in ns.
    pub p50_ns: Option<u64>,
    /// 99th percentile, in ns.
    pub p99_ns: Option<u64>,
    /// Bytes on disk.
    pub bytes: u64,
    /// Rows and measurements that were lost, all kinds together.
    pub lost: u64,
    /// Requests that are no rows, by the reason; an estimate.
    pub not_rows: Vec<(&'static str, u64)>,
}
