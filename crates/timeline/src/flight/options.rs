//! What a flight recorder is asked to do, and why it can't.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tailscope_kernel::timeline::{Config, Tier};
use tailscope_kernel::{LoadError, Probe, ProbeError, WatchError};
use tailscope_sdk_server::sockets::ServeError;

use crate::slow::Slow;

/// A source of spans in programs: the probes that begin and end them.
#[derive(Debug, Clone)]
pub struct SpanProbes {
    /// What its spans are called.
    pub name: String,
    /// Where they begin and end; the number of their source is its place among all sources.
    pub probes: Vec<Probe>,
}

/// What is decided before it begins.
#[derive(Debug, Clone)]
pub struct Options {
    /// How the recorder was started, for the windows to say; without the command that it starts.
    pub arguments: Vec<String>,
    /// How much of the past a window holds.
    pub keep: Duration,
    /// Bytes that the rings may take.
    pub memory: u64,
    /// Which requests have the window around them written.
    pub slow: Option<Slow>,
    /// Where windows go.
    pub folder: PathBuf,
    /// Whether the caller started a command and ends it: it then keeps the right to send signals.
    pub ends_command: bool,
    /// Windows a minute, at most, for slow requests.
    pub per_minute: u32,
    /// Bytes that all windows of this recording may take on disk.
    pub disk: u64,
    /// Whether children of watched processes are watched too.
    pub follow_children: bool,
    /// Whether a Perfetto trace is written beside each window.
    pub perfetto: bool,
    /// A socket at which windows can be asked for.
    pub control: Option<PathBuf>,
    /// Whether requests on sockets are followed.
    pub sockets: bool,
    /// Spans that are followed besides, or instead.
    pub spans: Vec<SpanProbes>,
    /// Which events are kept.
    pub tier: Tier,
    /// Whether spans are followed that programs with the SDK tell of themselves.
    pub sdk: bool,
}

impl Options {
    /// What is loaded into the kernel. `memory`: bytes of the rings.
    pub(super) fn with_memory(&self, memory: u64) -> Config {
        Config {
            memory,
            follow_children: self.follow_children,
            probes: !self.spans.is_empty(),
            tier: self.tier,
        }
    }

    /// What is loaded into the kernel.
    #[must_use]
    pub fn kernel_config(&self) -> Config {
        self.with_memory(self.memory)
    }
}

/// The timeline can't be recorded.
#[derive(Debug, thiserror::Error)]
pub enum FlightError {
    /// The kernel's programs can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A probe can't be attached.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// Programs with the SDK can't ask for their memory.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The SDK in a program can't be told of us.
    #[error(transparent)]
    Sdk(#[from] WatchError),
    /// No more processes can be watched.
    #[error("can't watch another process: the table of watched processes is full; watch fewer")]
    TooMany,
    /// The system refused.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What it said.
        source: io::Error,
    },
}
