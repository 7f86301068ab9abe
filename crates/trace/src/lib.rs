//! The ledger: one wide row a span, in a folder of Parquet files with a `ledger.json` beside them.
//!
//! `docs/reference/schema.md` is the contract of what is on disk. This crate is the only writer of it. It does
//! not read rows of ledgers: `explain` and `diff` (`python/tailscope`) do.
//!
//! * [`LedgerWriter`] takes [`SpanRow`]s and seals files by rename, so that a crash at any moment
//!   loses the unsealed seconds at most and never leaves a file that can't be read.
//! * [`TableEditor`] writes a table beside the rows anew, as with names that were found later.
//! * [`Cause`] is the persisted list of causes.
//!
//! The writer collects rows in columns and encodes row groups of at most 65,536 rows.

#![forbid(unsafe_code)]

mod cause;
mod columns;
mod error;
mod info;
mod partition;
mod row;
mod schema;
mod write;

pub use cause::{Cause, CauseSet};
pub use error::{Error, Result};
pub use info::{Clock, Cost, Counter, Machine, Metadata, Overhead, Rung, StackSampling, Summary};
pub use partition::utc;
pub use row::{Counts, Link, MOST_COUNTS, SpanName, SpanRow};
pub use schema::is_taken;
pub use write::{
    Existing, Kind, LOST_UNWRITTEN, LedgerWriter, Names, OwnedValue, STACKS, SamplesWriter,
    Sealing, TableEditor, TableWriter, Totals, Value, Written, clear, may_begin,
};

/// The name of the file in a ledger's folder that says what the ledger is.
pub const LEDGER_JSON: &str = "ledger.json";
