//! One span as it is handed to the writer.

use crate::Cause;

/// So many counters a row has at most.
pub const MOST_COUNTS: usize = 6;

/// What the hardware counted in a span: counters by their place in
/// [`Metadata::counters`](crate::Metadata::counters), and their values. The others are null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    len: u8,
    counters: [u8; MOST_COUNTS],
    values: [i64; MOST_COUNTS],
}

impl Counts {
    /// Adds a value; one more than there is room for is left out.
    pub fn push(&mut self, counter: u8, value: i64) {
        let place = usize::from(self.len);
        if place < MOST_COUNTS {
            self.counters[place] = counter;
            self.values[place] = value;
            self.len += 1;
        }
    }

    /// Counters and their values.
    pub fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        let counters = self.counters.iter().map(|counter| usize::from(*counter));
        counters.zip(self.values).take(usize::from(self.len))
    }
}

/// What joins a span with other records.
///
/// Each link is a nullable column of whole numbers, in ledgers whose
/// [`Metadata::links`](crate::Metadata::links) name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The connection that the request came on, as a number that both of its ends give it.
    Connection,
    /// The connection of the call to another server that the request waited for the longest.
    AskedConnection,
    /// When that call was sent, in ns since the Unix epoch.
    AskedStart,
    /// How long its answer took to be ready, in ns.
    AskedNs,
    /// The first half of the trace id of W3C Trace Context.
    TraceHigh,
    /// The second half.
    TraceLow,
    /// The parent id.
    TraceParent,
}

impl Link {
    /// How many links there are.
    pub const COUNT: usize = 7;
    /// Those that join requests with each other.
    pub const CHAIN: [Link; 4] = [
        Link::Connection,
        Link::AskedConnection,
        Link::AskedStart,
        Link::AskedNs,
    ];
    /// Those that join requests with traces.
    pub const TRACE: [Link; 3] = [Link::TraceHigh, Link::TraceLow, Link::TraceParent];

    /// Its place in [`SpanRow::links`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name of its column.
    #[must_use]
    pub const fn column(self) -> &'static str {
        match self {
            Link::Connection => "connection",
            Link::AskedConnection => "asked_connection",
            Link::AskedStart => "asked_start_ns",
            Link::AskedNs => "asked_ns",
            Link::TraceHigh => "trace_high",
            Link::TraceLow => "trace_low",
            Link::TraceParent => "trace_parent",
        }
    }
}

/// The name of a span or of a blamed thread, as an index into the name table of the writer that interned it
/// ([`LedgerWriter::intern`](crate::LedgerWriter::intern)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanName(pub(crate) u32);

impl SpanName {
    /// The position in the name table, counted from 0 in the order of first interning.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0
    }
}

/// One span: a row of the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanRow {
    /// Begin, in ns since the Unix epoch.
    pub start_ns: i64,
    /// The span's name.
    pub span: SpanName,
    /// The request that the span belongs to, where the source knows it.
    pub id: Option<i64>,
    /// The process that ran it.
    pub pid: i32,
    /// The thread that ran it.
    pub tid: i32,
    /// The CPU on which it ended.
    pub cpu: i32,
    /// End − begin, in ns.
    pub wall_ns: i64,
    /// 1 / the probability that this row was kept.
    pub weight: f64,
    /// ns that went to each cause, by [`Cause::index`]. Causes that the writer was not told to be
    /// measured are written as null, whatever stands here.
    pub cause_ns: [i64; Cause::COUNT],
    /// How many times each cause struck, likewise.
    pub cause_n: [u32; Cause::COUNT],
    /// Who is to blame for the largest part of each, likewise; only where
    /// [`Cause::blames`]. Written where the cause struck.
    pub cause_by: [Option<SpanName>; Cause::COUNT],
    /// How many other requests the span's thread began or answered while this one was open.
    pub others: u32,
    /// What the hardware counted.
    pub counts: Counts,
    /// What joins the span with other records, by [`Link::index`]; written where the ledger has it.
    pub links: [Option<i64>; Link::COUNT],
}

impl Default for SpanRow {
    /// An empty span of weight 1: a row that was sure to be kept.
    fn default() -> Self {
        SpanRow {
            start_ns: 0,
            span: SpanName(0),
            id: None,
            pid: 0,
            tid: 0,
            cpu: 0,
            wall_ns: 0,
            weight: 1.0,
            cause_ns: [0; Cause::COUNT],
            cause_n: [0; Cause::COUNT],
            cause_by: [None; Cause::COUNT],
            others: 0,
            counts: Counts::default(),
            links: [None; Link::COUNT],
        }
    }
}
