//! Pieces of a request's threads, cut where the threads began and ended to be at classes.

use std::collections::HashMap;

use crate::track::{Piece, Tracks};

/// Of one request, from the receive until its thread was done.
pub(super) struct Classes<'t> {
    tracks: &'t Tracks,
    from: u64,
    to: u64,
    by_thread: HashMap<u32, Vec<(u64, u64)>>,
}

impl<'t> Classes<'t> {
    pub(super) fn new(tracks: &'t Tracks, from: u64, to: u64) -> Self {
        let by_thread = HashMap::new();
        Self {
            tracks,
            from,
            to,
            by_thread,
        }
    }

    /// The parts of a piece, and whether the thread was at classes in each.
    pub(super) fn cut(&mut self, piece: Piece) -> Vec<(Piece, bool)> {
        let of = self
            .by_thread
            .entry(piece.tid)
            .or_insert_with(|| self.tracks.at_classes(piece.tid, self.from, self.to));
        let mut cut = Vec::new();
        let mut at = piece.from;
        for (begin, end) in of {
            let (begin, end) = ((*begin).clamp(at, piece.to), (*end).clamp(at, piece.to));
            for (from, to, at_classes) in [(at, begin, false), (begin, end, true)] {
                if to > from {
                    cut.push((Piece { from, to, ..piece }, at_classes));
                }
            }
            at = end;
        }
        if at < piece.to {
            let from = at;
            cut.push((Piece { from, ..piece }, false));
        }
        cut
    }
}
