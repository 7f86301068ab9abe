//! From live processes to a ledger: where spans come from and which are kept.
//!
//! [`Recorder`] watches processes, takes the rows of spans that the kernel's programs and the
//! SDK's processes leave, and writes them to a ledger until it is told to stop. [`Live`] has the
//! statistics meanwhile, with a ledger or without one.

#![forbid(unsafe_code)]

mod convert;
mod counting;
mod hooks;
mod interpreters;
mod launch;
mod live;
mod locate;
mod machine;
mod metadata;
mod notices;
mod options;
mod output;
mod pace;
mod pipeline;
mod probe;
mod process;
pub mod quantity;
mod recorder;
mod requests;
mod resolved;
mod retention;
mod sdk_names;
mod source;
mod stacks;
mod steal;
mod symbols;
mod tally;
mod tls;
mod wanted;

pub use counting::{READ_BY as COUNTED_BY, rung_here as counters_rung};
#[cfg(fuzzing)]
pub use interpreters::fuzz_memory;
pub use launch::{LaunchError, Launched, Prints, find_program};
pub use live::{Code, Kind, Live};
pub use machine::{describe as describe_machine, max_resident_bytes};
pub use notices::Notices;
pub use options::{CodeFor, End, Listener, MOST_STACK_RATE, Options, Place, Progress, RecordError};
pub use pipeline::Tap;
pub use probe::{Ends, Point, ProbeSource, ProbeSyntax};
pub use process::{Process, ProcessError};
pub use recorder::{Closing, Counted, NextLedger, Paused, Recorder};
#[cfg(fuzzing)]
pub use requests::fuzz_headers;
pub use requests::{Naming, UnknownNaming};
pub use resolved::{ResolvedProbes, UnresolvedError};
pub use retention::Policy;
pub use source::{SourceError, SpanSource};
pub use stacks::symbolize::{CodeFile, Symbolized, symbolize};
pub use steal::StealClock;
pub use tailscope_sdk_server::Address as SdkAddress;
pub use tally::{Breakdown, Tally};
pub use wanted::{WantedError, wanted_events};
