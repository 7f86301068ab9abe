//! Pieces of work: what threads did and waited for, on the way to the request that it was for.
//!
//! Work begins as a request's, or as nobody's: a thread that comes from a queue which no hook shows
//! works for a request that only its later send names. It then becomes part of that request.

use super::item::Item;
use super::request::Request;

/// Names a piece of work; never used again.
pub(super) type WorkId = u64;

/// So many items of one request are kept apart. Further ones are left out, and the request counts as
/// ambiguous.
const MOST_ITEMS: usize = 4096;

/// The most calls without an answer that are remembered of a work.
const MOST_ASKS: usize = 16;

/// The most parts that a work keeps account of: those handed over, and those that handed it over.
pub(super) const MOST_PARTS: usize = 1024;

/// The most queues of a work that may be none.
const MOST_DOUBTFUL: usize = 16;

/// A queue of which only the end of the request shows whether it was one.
#[derive(Debug, Clone, Copy)]
pub(super) struct DoubtfulQueue {
    pub(super) until: u64,
    /// The thread that took the work then had had nothing to do.
    pub(super) by_idle: bool,
}

/// A piece of work.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// It has become part of that.
    pub(super) into: Option<WorkId>,
    pub(super) items: Vec<Item>,
    pub(super) request: Option<Request>,
    /// Some of its time may be another request's, or the other way round.
    pub(super) ambiguous: bool,
    pub(super) touched: u64,
    /// Of nobody's: since when its thread was busy with other work, and when it began with this.
    pub(super) busy: Option<(u64, u64)>,
    /// Of nobody's: its thread began with it right after a wait for sockets.
    pub(super) from_sockets: bool,
    /// Of nobody's: it was handed over as a part of that, which its thread has still to show.
    pub(super) hint: Option<WorkId>,
    /// The thread that did.
    pub(super) by: Option<u32>,
    /// That had asked another server when it was handed over.
    pub(super) is_result: bool,
    /// Of nobody's: its thread then received that. Whom it had woken before may have gone on with that.
    pub(super) turned_to: Option<WorkId>,
    /// It has asked another server, so its thread does work for somebody.
    pub(super) proven: bool,
    /// Its calls without an answer: the socket, 0 if another request may have made it, and when it was sent.
    pub(super) asks: Vec<(u64, u64)>,
    /// When a timer let the thread go on that began with it, or handed it over, while it was nobody's.
    pub(super) timer: Option<u64>,
    /// A call that was taken for another's may be its own.
    pub(super) may_have_asked: bool,
    /// What has become part of this, lately.
    pub(super) merged: Vec<WorkId>,
    /// What was handed over as a part of this.
    pub(super) handed: Vec<WorkId>,
    /// A thread to which this was handed has shown that it works for it.
    pub(super) taken: bool,
    /// Work of the threads that handed this over to those: all of it may have been for this.
    pub(super) over: Vec<WorkId>,
    /// Its thread has handed it over and does not go on with it.
    pub(super) is_left: bool,
    /// Its queues in which it may have been under way.
    pub(super) doubtful_queues: Vec<DoubtfulQueue>,
}

impl Work {
    pub(super) fn add(&mut self, item: Item) {
        if self.items.len() < MOST_ITEMS {
            self.items.push(item);
        } else {
            self.ambiguous = true;
        }
    }

    /// It is a request, and an answer has begun.
    pub(super) fn is_answered(&self) -> bool {
        let request = self.request.as_ref();
        request.is_some_and(|request| request.ended != 0)
    }

    /// It has asked another server.
    pub(super) fn ask(&mut self, call: (u64, u64)) {
        if self.asks.len() < MOST_ASKS {
            self.asks.push(call);
        }
    }

    /// Nothing has shown for whom its threads worked.
    pub(super) fn set_beside(&mut self) {
        for item in &mut self.items {
            if let Item::Slice(of) | Item::Tail(of) = item {
                *item = Item::Beside(std::mem::take(of));
            }
        }
    }

    /// A thread had not handed it over after all: what it did since then was for it.
    pub(super) fn keep_tail(&mut self, tid: u32, since: u64) {
        for item in self.items.iter_mut().rev() {
            match item {
                Item::Slice(of) | Item::Tail(of) if of.tid == tid && of.from < since => break,
                Item::Tail(of) if of.tid == tid => *item = Item::Slice(std::mem::take(of)),
                _ => {}
            }
        }
    }

    /// Takes back that it queued until then, and returns since when, if a thread has worked for it as long in
    /// that time: it had set a timer before it turned to others. Where a thread only took note of it, its
    /// turn may still have come.
    pub(super) fn take_back_queue(&mut self, until: u64) -> Option<u64> {
        let is_it = |item: &Item| matches!(item, Item::Queue { to, .. } if *to == until);
        let place = self.items.iter().rposition(is_it)?;
        let Item::Queue { from, .. } = self.items[place] else {
            return None;
        };
        (until.saturating_sub(from) <= 2 * self.worked(from, until)).then(|| {
            self.items.remove(place);
            from
        })
    }

    /// It has queued, as far as is known by now. Where it was handed to others, they may have worked for it.
    pub(super) fn doubt_queue(&mut self, queue: DoubtfulQueue) {
        if !self.handed.is_empty() && self.doubtful_queues.len() < MOST_DOUBTFUL {
            self.doubtful_queues.push(queue);
        }
    }

    /// It was under way until `from`, at least, and did not queue.
    pub(super) fn shorten_queue(&mut self, until: u64, from: u64) {
        let is_it = |item: &Item| matches!(item, Item::Queue { to, .. } if *to == until);
        let Some(place) = self.items.iter().rposition(is_it) else {
            return;
        };
        if from >= until {
            self.items.remove(place);
        } else if let Item::Queue { from: begin, .. } = &mut self.items[place] {
            *begin = from.max(*begin);
        }
    }

    /// How long threads have worked for it in that time.
    pub(super) fn worked(&self, from: u64, until: u64) -> u64 {
        let worked = self.items.iter().map(|item| match item {
            Item::Slice(of) => of.to.min(until).saturating_sub(of.from.max(from)),
            _ => 0,
        });
        worked.sum()
    }

    /// When a thread worked for it last, up to that moment.
    pub(super) fn worked_until(&self, before: u64) -> Option<u64> {
        let ends = self.items.iter().filter_map(|item| match item {
            Item::Slice(of) if of.from < before => Some(of.to.min(before)),
            _ => None,
        });
        ends.max()
    }

    /// Since when something is known of it.
    pub(super) fn known_from(&self) -> Option<u64> {
        let starts = self.items.iter().map(|item| match item {
            Item::Slice(of) | Item::Tail(of) | Item::Beside(of) => of.from,
            Item::Downstream { sent, .. } => *sent,
            Item::Queue { from, .. } | Item::Accept { from, .. } | Item::Timer { from, .. } => {
                *from
            }
        });
        starts.min()
    }

    /// Until when something is known of it.
    pub(super) fn known_until(&self) -> Option<u64> {
        let ends = self.items.iter().map(|item| match item {
            Item::Slice(of) | Item::Tail(of) | Item::Beside(of) => of.to,
            Item::Downstream { received, .. } => *received,
            Item::Queue { to, .. } | Item::Accept { to, .. } | Item::Timer { to, .. } => *to,
        });
        ends.max()
    }
}
