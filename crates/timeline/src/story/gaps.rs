//! A request's gaps, as they are put together.

use super::{Gap, Kind, Stage};
use crate::ticks::Function;

/// Gaps that lie end to end.
pub(super) struct Gaps {
    begin: u64,
    pub(super) at: u64,
    pub(super) all: Vec<Gap>,
}

impl Gaps {
    pub(super) fn new(begin: u64) -> Self {
        Self {
            begin,
            at: begin,
            all: Vec::new(),
        }
    }

    /// A gap from where the one before it ended; none if that is later. Gives back where it ends.
    pub(super) fn upto(&mut self, to: u64, stage: Stage, kind: Kind, name: &str) -> u64 {
        self.push(to, stage, kind, name.to_owned(), (0, Vec::new()));
        self.at
    }

    /// A gap with the thread that was looked at, and the functions that ticks met.
    pub(super) fn push(
        &mut self,
        to: u64,
        stage: Stage,
        kind: Kind,
        name: String,
        (tid, functions): (u32, Vec<Function>),
    ) {
        if to > self.at {
            self.all.push(Gap {
                at_ns: self.at - self.begin,
                ns: to - self.at,
                stage,
                kind,
                name,
                tid,
                functions,
                words: String::new(),
            });
            self.at = to;
        }
    }
}
