//! One row as it is stored.

use std::sync::Arc;

use crate::Cause;

/// A span read from a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSpan {
    /// Begin, in ns since the Unix epoch.
    pub start_ns: i64,
    /// The span's name.
    pub span: Arc<str>,
    /// The request that the span belongs to, where the source knew it.
    pub id: Option<i64>,
    /// The process that ran it.
    pub pid: i64,
    /// The thread that ran it.
    pub tid: i64,
    /// The CPU on which it ended.
    pub cpu: i64,
    /// End − begin, in ns.
    pub wall_ns: i64,
    /// 1 / the probability that this row was kept.
    pub weight: f64,
    /// ns that went to each cause, by [`Cause::index`]; `None` where it could not be measured.
    pub cause_ns: [Option<i64>; Cause::COUNT],
    /// How many times each cause struck, likewise.
    pub cause_n: [Option<i64>; Cause::COUNT],
    /// Who is to blame for the largest part of each, where that is known.
    pub cause_by: [Option<Arc<str>>; Cause::COUNT],
    /// How many other requests the span's thread began or answered meanwhile; `None`: none, or not
    /// known.
    pub others: Option<i64>,
}

impl StoredSpan {
    /// A row whose columns are still to be read.
    pub(super) fn blank() -> StoredSpan {
        StoredSpan {
            start_ns: 0,
            span: Arc::from(""),
            id: None,
            pid: 0,
            tid: 0,
            cpu: 0,
            wall_ns: 0,
            weight: 0.0,
            cause_ns: [None; Cause::COUNT],
            cause_n: [None; Cause::COUNT],
            cause_by: [const { None }; Cause::COUNT],
            others: None,
        }
    }

    /// ns that the span ran itself: `wall_ns` less every cause (unmeasured ones as 0).
    #[must_use]
    pub fn running_ns(&self) -> i64 {
        self.wall_ns - self.cause_ns.iter().flatten().sum::<i64>()
    }
}
