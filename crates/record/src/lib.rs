//! From live processes to a ledger: where spans come from and which are kept.
//!
//! [`Recorder`] watches processes, takes the rows of spans that the kernel's programs and the
//! SDK's processes leave, and writes them to a ledger until it is told to stop.

mod aim;
mod book;
mod convert;
mod elf;
mod files;
mod keeping;
mod launch;
mod live;
mod locate;
mod machine;
mod metadata;
mod nearest;
mod options;
mod probe;
mod process;
mod recorder;
mod rungs;
mod sdk;
mod source;
mod steal;
mod symbols;

pub use aim::{Aim, AimError};
pub use keeping::Policy;
pub use launch::{LaunchError, Launched};
pub use machine::{describe as describe_machine, max_resident_bytes};
pub use options::{End, Options, Progress, RecordError};
pub use probe::{Ends, Point, ProbeSource, ProbeSyntax};
pub use process::{Process, ProcessError};
pub use recorder::Recorder;
pub use source::{SourceError, SpanSource};
pub use steal::StealClock;
