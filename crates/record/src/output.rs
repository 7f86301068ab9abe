//! Where the rows of a recording go.

use std::sync::Arc;
use std::time::Instant;

use tailscope_trace::{LedgerWriter, Names, Result, SpanName, SpanRow, Summary, Totals};

/// A ledger, or nowhere: then the statistics are all that there is of them.
pub(crate) enum Output {
    Ledger(Box<LedgerWriter>),
    Nowhere(Names),
}

impl Output {
    /// Whether there is a ledger.
    pub(crate) fn is_ledger(&self) -> bool {
        matches!(self, Self::Ledger(_))
    }

    /// The ledger, if there is one.
    pub(crate) fn ledger(&self) -> Option<&LedgerWriter> {
        match self {
            Self::Ledger(ledger) => Some(ledger),
            Self::Nowhere(_) => None,
        }
    }

    fn names(&self) -> &Names {
        match self {
            Self::Ledger(ledger) => ledger.names(),
            Self::Nowhere(names) => names,
        }
    }

    /// The handle of a span's name; of `other` if there are `most` already and it is not among them.
    pub(crate) fn intern(&mut self, name: &str, most: u32, other: &str) -> SpanName {
        let full = self.names().len() >= most;
        let name = match self.names().find(name) {
            Some(known) => return known,
            None if full => other,
            None => name,
        };
        match self {
            Self::Ledger(ledger) => ledger.intern(name),
            Self::Nowhere(names) => names.intern(name),
        }
    }

    /// Goes on in this ledger. All handles hold for it too.
    pub(crate) fn begin(&mut self, mut ledger: LedgerWriter) {
        ledger.take_over(self.names());
        *self = Self::Ledger(Box::new(ledger));
    }

    /// Goes on nowhere; gives back the ledger, if there was one.
    pub(crate) fn end(&mut self) -> Option<LedgerWriter> {
        let names = self.names().clone();
        match std::mem::replace(self, Self::Nowhere(names)) {
            Self::Ledger(ledger) => Some(*ledger),
            Self::Nowhere(_) => None,
        }
    }

    /// The name of a handle that [`intern`](Self::intern) gave.
    pub(crate) fn name(&self, span: SpanName) -> Arc<str> {
        self.names().text(span).clone()
    }

    /// Takes a row.
    pub(crate) fn push(&mut self, row: &SpanRow) -> Result<()> {
        match self {
            Self::Ledger(ledger) => ledger.push(row),
            Self::Nowhere(_) => Ok(()),
        }
    }

    /// Lets time pass: to be called at every look.
    pub(crate) fn tick(&mut self, now: Instant) -> Result<()> {
        match self {
            Self::Ledger(ledger) => ledger.tick(now),
            Self::Nowhere(_) => Ok(()),
        }
    }

    /// Has all rows so far on disk.
    pub(crate) fn seal(&mut self) -> Result<()> {
        match self {
            Self::Ledger(ledger) => ledger.seal(),
            Self::Nowhere(_) => Ok(()),
        }
    }

    /// What is on disk by now.
    pub(crate) fn totals(&self) -> Totals {
        match self {
            Self::Ledger(ledger) => ledger.totals(),
            Self::Nowhere(_) => Totals::default(),
        }
    }

    /// Ends it.
    pub(crate) fn finish(self, summary: Summary) -> Result<Totals> {
        match self {
            Self::Ledger(ledger) => ledger.finish(summary),
            Self::Nowhere(_) => Ok(Totals::default()),
        }
    }
}
