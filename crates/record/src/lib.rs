//! From live processes to a ledger: where spans come from and which are kept.
//!
//! [`Recorder`] watches processes, takes the rows of spans that the kernel's programs and the
//! SDK's processes leave, and writes them to a ledger until it is told to stop.

mod book;
mod convert;
mod files;
mod launch;
mod live;
mod machine;
mod metadata;
mod process;
mod recorder;
mod sdk;
mod source;
mod steal;

pub use launch::{LaunchError, Launched};
pub use machine::{describe as describe_machine, max_resident_bytes};
pub use process::{Process, ProcessError};
pub use recorder::{End, Options, Progress, RecordError, Recorder};
pub use source::{SourceError, SpanSource};
pub use steal::StealClock;
