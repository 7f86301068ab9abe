//! How a run is wished, how it ends, and why it can't be.

use std::path::PathBuf;
use std::time::Duration;

use crate::dte::Tolerance;
use crate::pace::Period;
use crate::placement::PlacementError;
use crate::signal::Signal;
use crate::{MOST_COUNTERS, MOST_TAGS};

/// How much of the application's speed observing may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Budget(pub f64);

/// How to observe.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often to sample; under a budget, what it begins with is found instead.
    pub period: Period,
    /// By which share of it periods vary at random.
    pub jitter: f64,
    /// By how much the two readings of the clock may disagree.
    pub tolerance: Tolerance,
    /// How fast the first counter can grow at most, in counts a cycle, if that is known.
    pub most: Option<f64>,
    /// How long; `None`: until told to stop, or the process ends.
    pub duration: Option<Duration>,
    /// The length of a slice of the time series.
    pub slice: Duration,
    /// Whether the observer switches itself off at times, to measure its effect.
    pub pauses: bool,
    /// Finds the period.
    pub budget: Option<Budget>,
    /// Where raw samples go: a folder that is not there yet.
    pub raw: Option<PathBuf>,
    /// The application's progress, if it is not the first counter.
    pub progress: Option<Signal>,
    /// Of everything that is random.
    pub seed: u64,
}

/// Why a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its time was over.
    Done,
    /// It was told to.
    Stopped,
    /// An observed process ended.
    Exited(u32),
    /// An observed process started another program.
    Execed(u32),
    /// A signal that is read by a system call no longer was.
    Unreadable,
}

impl End {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Done => "done".into(),
            Self::Stopped => "stopped".into(),
            Self::Exited(pid) => format!("process {pid} ended"),
            Self::Unreadable => {
                "a signal can't be read any more: its process or thread has ended, or \
                                 others took the CPU's counters"
                    .into()
            }
            Self::Execed(pid) => format!("process {pid} started another program"),
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Since its begin.
    pub elapsed: Duration,
    /// Samples taken.
    pub samples: u64,
}

/// A run that can't be.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Nothing, or too much, to observe.
    #[error(
        "can't observe {counters} counters and {tags} tags: one run reads 1 to {MOST_COUNTERS} \
         counters and at most {MOST_TAGS} tags; observe the others in another run"
    )]
    Number {
        /// Counters.
        counters: usize,
        /// Tags.
        tags: usize,
    },
    /// The observer's CPU.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The folder of raw samples.
    #[error(transparent)]
    Raw(#[from] tailscope_trace::Error),
    /// The system refused.
    #[error("can't {what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}
