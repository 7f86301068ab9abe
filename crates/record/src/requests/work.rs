//! Pieces of work: what threads did and waited for, on the way to the request that it was for.
//!
//! Work begins as a request's, or as nobody's: a thread that comes from a queue which no hook shows
//! works for a request that only its later send names. It then becomes part of that request.

use std::net::SocketAddr;

use rustc_hash::FxHashMap;
use tailscope_signals::abi;

use super::bounds::newest_from;
use super::item::Item;
use super::link::Trace;

/// Names a piece of work; never used again.
pub(super) type WorkId = u64;

/// So many items of one request are kept apart. Further ones are left out, and the request counts as
/// ambiguous.
const MOST_ITEMS: usize = 4096;

/// The most calls without an answer that are remembered of a work.
const MOST_ASKS: usize = 16;

/// The most parts that a work keeps account of: those handed over, and those that handed it over.
const MOST_PARTS: usize = 1024;

/// What is known of a request beside its items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) socket: u64,
    pub(super) peer: Option<SocketAddr>,
    /// The number of its connection.
    pub(super) connection: Option<i64>,
    pub(super) trace: Option<Trace>,
    pub(super) pid: u32,
    /// The thread that received it.
    pub(super) received_by: u32,
    /// The thread and the CPU of its latest send.
    pub(super) tid: u32,
    pub(super) cpu: u16,
    pub(super) ready: u64,
    /// End of the latest send; 0: none yet.
    pub(super) ended: u64,
    pub(super) name: Option<String>,
    /// It came over TLS.
    pub(super) encrypted: bool,
    /// Its first bytes are a handshake's.
    pub(super) handshake: bool,
    /// Since when the latest of it was ready, where it began with a handshake.
    pub(super) latest: u64,
    /// What the program decrypted of it was seen.
    pub(super) decrypted: bool,
    /// Others may overlap with it, on its connection.
    pub(super) overlaps: bool,
    /// TCP keeps, or kept, its end back.
    pub(super) held: Option<Held>,
    /// Its thread received nothing else, and has sent on a socket of another.
    pub(super) pushed: bool,
    /// Its answer's end, with its thread and CPU, if all that was sent since was pushed.
    pub(super) before_pushes: Option<Answered>,
}

impl Request {
    /// Whether it is none, where all that its program decrypts is seen: a handshake of TLS, or a
    /// message of TLS to which nobody answers.
    pub(super) fn has_no_data(&self) -> bool {
        self.encrypted && !self.decrypted && (self.handshake || self.ended == 0)
    }

    /// Whether its answer was kept back for want of room, so that its thread may send the rest later.
    pub(super) fn waits_for_room(&self) -> bool {
        match self.held {
            Some(Held::Still { why } | Held::Unseen { why } | Held::Until { why, .. }) => {
                u32::from(why) != abi::TS_HELD_NAGLE
            }
            None => false,
        }
    }

    /// Whether it may be a handshake, or several requests, and nothing tells.
    pub(super) fn is_doubtful(&self) -> bool {
        self.encrypted && (!self.decrypted || self.overlaps)
    }
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) at: u64,
    pub(super) tid: u32,
    pub(super) cpu: u16,
    pub(super) held: Option<Held>,
}

/// How long TCP kept back the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Nothing has shown yet when it was passed on,
    Still { why: u16 },
    /// or will show it.
    Unseen { why: u16 },
    /// So long after the send.
    Until { ns: u64, why: u16 },
}

impl Held {
    /// What TCP does with an answer as it is sent; 0: it passes all on.
    pub(super) fn at_send(why: u64) -> Option<Self> {
        (why != 0).then_some(Self::Still { why: why as u16 })
    }
}

/// Work that a thread hands to one that it wakes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handed {
    pub(super) of: WorkId,
    /// The thread that does.
    pub(super) by: u32,
    /// It had asked another server by then: what it hands over is what came of that.
    pub(super) as_result: bool,
    /// A timer had let it go on, at that moment.
    pub(super) timer: Option<u64>,
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
    fn set_beside(&mut self) {
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

    /// How long threads have worked for it in that time.
    pub(super) fn worked(&self, from: u64, until: u64) -> u64 {
        let worked = self.items.iter().map(|item| match item {
            Item::Slice(of) => of.to.min(until).saturating_sub(of.from.max(from)),
            _ => 0,
        });
        worked.sum()
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

/// All work that goes on.
#[derive(Debug, Default)]
pub(super) struct Works {
    next: WorkId,
    works: FxHashMap<WorkId, Work>,
}

impl Works {
    pub(super) fn begin(&mut self, request: Option<Request>, at: u64) -> WorkId {
        self.next += 1;
        let work = Work {
            request,
            touched: at,
            ..Work::default()
        };
        self.works.insert(self.next, work);
        self.next
    }

    /// A thread was handed this work. Until it shows for whom it really works, what it does is kept
    /// apart: another thread may have been quicker.
    pub(super) fn begin_handed(&mut self, handed: Handed, at: u64) -> WorkId {
        let Handed { of, by, .. } = handed;
        let part = self.begin(None, at);
        if let Some(work) = self.works.get_mut(&part) {
            work.hint = Some(of);
            work.by = Some(by);
            work.is_result = handed.as_result;
            work.timer = handed.timer;
        }
        self.keep_part(of, part);
        part
    }

    fn keep_part(&mut self, of: WorkId, part: WorkId) {
        let Some(mut handed) = self.get_mut(of).map(|of| std::mem::take(&mut of.handed)) else {
            return;
        };
        if handed.len() >= MOST_PARTS {
            handed.retain(|part| self.root(*part) == Some(*part));
        }
        if handed.len() < MOST_PARTS {
            handed.push(part);
        }
        if let Some(of) = self.get_mut(of) {
            of.handed = handed;
        }
    }

    /// The request ends: what was handed over of it and has shown nothing else is its own, unless
    /// some thread has shown that it was the one.
    pub(super) fn take_back(&mut self, id: WorkId) {
        self.take_what_led_here(id);
        let Some(work) = self.get_mut(id) else { return };
        let (parts, taken) = (std::mem::take(&mut work.handed), work.taken);
        for part in parts {
            if self.root(part) != Some(part) {
                continue; // it has joined another, which settles its own
            }
            self.take_back(part);
            if !taken && self.is_nobodys(part) {
                if let Some(part) = self.works.get_mut(&part) {
                    part.set_beside();
                }
                self.merge(part, id);
            }
        }
    }

    /// Who handed over what has become part of this worked for it, or by now has shown that it worked for
    /// another. It comes before what was handed over: that takes the same parts.
    fn take_what_led_here(&mut self, id: WorkId) {
        while let Some(over) = self.get_mut(id).and_then(|work| work.over.pop()) {
            let of = self.root(over).and_then(|over| self.works.get(&over));
            if of.is_some_and(|of| of.request.is_none() && of.is_left && !of.proven) {
                self.take_back(over);
                if let Some(of) = self.get_mut(over) {
                    of.set_beside();
                }
                self.merge(over, id);
            }
        }
    }

    /// What this has become part of, and whether that still goes on.
    pub(super) fn root(&self, mut id: WorkId) -> Option<WorkId> {
        loop {
            match self.works.get(&id)?.into {
                Some(into) => id = into,
                None => return Some(id),
            }
        }
    }

    pub(super) fn get(&self, id: WorkId) -> Option<&Work> {
        self.works.get(&self.root(id)?)
    }

    pub(super) fn get_mut(&mut self, id: WorkId) -> Option<&mut Work> {
        let root = self.root(id)?;
        self.works.get_mut(&root)
    }

    /// For which work a wake-up began this, over any number of threads; `None`: it has ended.
    pub(super) fn woken_for(&self, id: WorkId) -> Option<WorkId> {
        let mut of = self.root(id)?;
        while let Some(hint) = self.works.get(&of)?.hint {
            of = self.root(hint)?;
        }
        Some(of)
    }

    /// What is known of `part`, and of what let it go on, over any number of threads.
    fn back_from(&self, part: WorkId) -> impl Iterator<Item = (WorkId, &Work)> {
        let of = |id: WorkId| Some((self.root(id)?, self.get(id)?));
        std::iter::successors(of(part), move |(_, work)| work.hint.and_then(of))
    }

    /// For which request a part may have begun: one that a thread on the way to it received right after it
    /// had woken others, unless that thread had another in hand.
    fn may_be_for(&self, part: WorkId) -> Option<WorkId> {
        let (first, of) = self.back_from(part).last()?;
        if of.request.is_some() {
            return Some(first);
        }
        let mut turned_to = self.back_from(part).filter_map(|(_, of)| of.turned_to);
        self.root(turned_to.next()?)
    }

    /// An answer of another server let `part` go on, which the thread received right after it had woken
    /// others. If `whole` may have asked for it, and nobody else, it has.
    pub(super) fn take_result(&mut self, part: WorkId, whole: WorkId) {
        if let Some(result) = self.result_behind(part, whole) {
            self.merge(result, whole);
            if let Some(whole) = self.get_mut(whole) {
                whole.proven = true;
            }
        }
    }

    fn result_behind(&self, part: WorkId, whole: WorkId) -> Option<WorkId> {
        let mut received = self.back_from(part).filter_map(|(_, of)| of.turned_to);
        let result = received.find(|of| self.get(*of).is_some_and(|of| of.proven))?;
        (self.may_be_for(result) == Some(whole)).then_some(result)
    }

    /// Whether a part began with a wake-up for that work, over any number of threads.
    pub(super) fn was_handed_over(&self, part: WorkId, whole: WorkId) -> bool {
        let whole = self.root(whole);
        let mut of = self.root(part);
        while let Some(hint) = of.and_then(|of| self.works.get(&of)?.hint) {
            of = self.root(hint);
            if of.is_some() && of == whole {
                return true;
            }
        }
        false
    }

    /// Whether more can come of it: its request has no answer, or it is nobody's yet and not a mere
    /// part of one that has.
    pub(super) fn is_live(&self, id: WorkId) -> bool {
        self.get(id).is_some_and(|work| match &work.request {
            Some(request) => request.ended == 0,
            None => work.proven || work.hint.is_none_or(|of| self.is_live(of)),
        })
    }

    /// Whether it has asked another server, or may be the one that has.
    pub(super) fn may_have_asked(&self, id: WorkId) -> bool {
        self.get(id)
            .is_some_and(|work| work.proven || work.may_have_asked)
    }

    /// Whether a thread to which it was handed, of the latest, has shown that it works for it.
    pub(super) fn is_taken(&self, id: WorkId) -> bool {
        const LATEST: usize = 8;
        let has_shown = |part: &WorkId| self.get(*part).is_some_and(|part| part.proven);
        self.get(id)
            .is_some_and(|work| work.taken || work.handed.iter().rev().take(LATEST).any(has_shown))
    }

    /// Whether no request is known for which it is.
    pub(super) fn is_nobodys(&self, id: WorkId) -> bool {
        self.get(id).is_some_and(|work| work.request.is_none())
    }

    /// `part`, which is nobody's, was for `whole`.
    pub(super) fn merge(&mut self, part: WorkId, whole: WorkId) {
        let (Some(part), Some(whole)) = (self.root(part), self.root(whole)) else {
            return;
        };
        if part == whole {
            return;
        }
        let woken_for = self.woken_for(part);
        let Some(work) = self.works.get_mut(&part) else {
            return;
        };
        work.into = Some(whole);
        let (ambiguous, hint, is_result) = (work.ambiguous, work.hint, work.is_result);
        let asks = std::mem::take(&mut work.asks);
        let items = std::mem::take(&mut work.items);
        let mut merged = std::mem::take(&mut work.merged);
        merged.push(part);
        let handed = std::mem::take(&mut work.handed);
        let mut over = std::mem::take(&mut work.over);
        let by = hint.filter(|hint| self.is_nobodys(*hint));
        over.extend(by.filter(|_| !is_result));
        if let Some(work) = self.works.get_mut(&whole) {
            items.into_iter().for_each(|item| work.add(item));
            // The thread was woken for another request: how long it may have worked for that one
            // before it took this one is not known.
            work.ambiguous |= ambiguous || (hint.is_some() && woken_for != Some(whole));
            work.handed.extend(handed);
            let room = MOST_PARTS.saturating_sub(work.merged.len());
            work.merged.extend(merged.into_iter().take(room));
            work.taken = true;
            asks.into_iter().for_each(|call| work.ask(call));
            let room = MOST_PARTS.saturating_sub(work.over.len());
            work.over.extend(over.into_iter().take(room));
        }
        if let Some(by) = by.filter(|_| is_result) {
            self.merge(by, whole);
        }
    }

    /// Takes it out, with what has become part of it.
    pub(super) fn end(&mut self, id: WorkId) -> Option<Work> {
        let root = self.root(id)?;
        let work = self.works.remove(&root)?;
        for part in &work.merged {
            self.works.remove(part);
        }
        Some(work)
    }

    pub(super) fn len(&self) -> usize {
        self.works.len()
    }

    /// Of how many items all of them are made.
    pub(super) fn items(&self) -> usize {
        self.works.values().map(|work| work.items.len()).sum()
    }

    /// Forgets those of the most items, until at most that many items are left. Returns how many of them
    /// were requests.
    pub(super) fn forget_largest(&mut self, most: usize) -> u64 {
        let mut sizes: Vec<_> = self
            .works
            .iter()
            .map(|(id, w)| (w.items.len(), *id))
            .collect();
        sizes.sort_unstable();
        let mut surplus = self.items().saturating_sub(most);
        let mut requests = 0;
        while let Some((items, id)) = sizes.pop().filter(|_| surplus > 0) {
            surplus = surplus.saturating_sub(items);
            requests += u64::from(self.works.remove(&id).is_some_and(|w| w.request.is_some()));
        }
        requests
    }

    /// Forgets work that nothing has been added to since then, but for requests.
    pub(super) fn forget_until(&mut self, before: u64) {
        self.works.retain(|_, work| {
            let is_request = work.request.is_some() && work.into.is_none();
            work.touched >= before || is_request
        });
    }

    /// Forgets the requests that nothing has been added to for the longest, so that at most that many
    /// pieces of work are left.
    pub(super) fn forget_oldest(&mut self, most: usize) {
        let touched = self.works.values().map(|work| work.touched);
        let from = newest_from(touched.collect(), most);
        self.works.retain(|_, work| work.touched > from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_part_of_a_request_ends_with_it() {
        let mut works = Works::default();
        let request = works.begin(Some(Request::default()), 1);
        let (first, second) = (works.begin(None, 2), works.begin(None, 3));
        works.merge(second, first);
        works.merge(first, request);
        assert!(works.end(request).is_some());
        assert_eq!(works.len(), 0);
    }

    fn queue(from: u64, to: u64) -> Item {
        let behind = None;
        Item::Queue { from, to, behind }
    }

    #[test]
    fn work_that_turns_out_to_be_a_requests_brings_what_it_has() {
        let mut works = Works::default();
        let request = works.begin(Some(Request::default()), 1);
        let (first, second) = (works.begin(None, 2), works.begin(None, 3));
        works.get_mut(second).expect("there").add(queue(1, 2));
        works.merge(second, first);
        works.merge(first, request);
        assert_eq!(works.root(second), Some(request));
        assert_eq!(works.get(first).expect("there").items, [queue(1, 2)]);
        assert_eq!(works.get(request).expect("there").known_until(), Some(2));
    }

    #[test]
    fn what_has_ended_is_nobodys_root() {
        let mut works = Works::default();
        let request = works.begin(Some(Request::default()), 1);
        let part = works.begin(None, 2);
        works.merge(part, request);
        assert!(works.end(part).is_some());
        assert_eq!(works.root(part), None);
        assert!(!works.is_live(request));
    }
}
