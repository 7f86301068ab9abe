//! Pieces of a request's threads, cut where the threads began and ended to be at classes.

use std::collections::HashMap;

use crate::thread_timeline::{Interval, ThreadTimelines};

/// Of one request, from the receive until its thread was done.
pub(super) struct Classes<'t> {
    timelines: &'t ThreadTimelines,
    from: u64,
    to: u64,
    by_thread: HashMap<u32, Vec<(u64, u64)>>,
}

impl<'t> Classes<'t> {
    pub(super) fn new(timelines: &'t ThreadTimelines, from: u64, to: u64) -> Self {
        let by_thread = HashMap::new();
        Self {
            timelines,
            from,
            to,
            by_thread,
        }
    }

    /// The parts of an interval, and whether the thread was at classes in each.
    pub(super) fn cut(&mut self, interval: Interval) -> Vec<(Interval, bool)> {
        let of = self
            .by_thread
            .entry(interval.tid)
            .or_insert_with(|| self.timelines.at_classes(interval.tid, self.from, self.to));
        let mut cut = Vec::new();
        let mut at = interval.from;
        for (begin, end) in of {
            let (begin, end) = (
                (*begin).clamp(at, interval.to),
                (*end).clamp(at, interval.to),
            );
            for (from, to, at_classes) in [(at, begin, false), (begin, end, true)] {
                if to > from {
                    cut.push((
                        Interval {
                            from,
                            to,
                            ..interval
                        },
                        at_classes,
                    ));
                }
            }
            at = end;
        }
        if at < interval.to {
            let from = at;
            cut.push((Interval { from, ..interval }, false));
        }
        cut
    }
}
