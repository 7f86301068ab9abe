//! All work that goes on, and what has become part of what.

use rustc_hash::FxHashMap;

use super::DOUBTFUL_FROM_NS;
use super::newest::newest_from;
use super::request::Request;
use super::work::{DoubtfulQueue, MOST_PARTS, Work, WorkId};

/// The most threads that are looked at of those to which a work was handed: the latest;
const LATEST: usize = 8;
/// and the most in all, with those to which these handed it in turn.
const MOST_LOOKED_AT: usize = 64;
/// For at most this long after its end a thread that has handed a request on still works for it.
const WORKS_ON_NS: u64 = 1_000_000;

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
        let has_shown = |part: &WorkId| self.get(*part).is_some_and(|part| part.proven);
        self.get(id)
            .is_some_and(|work| work.taken || work.handed.iter().rev().take(LATEST).any(has_shown))
    }

    /// The request ends: where a thread to which it was handed worked while it seemed to queue, and what that
    /// did has joined no other work, it was under way. Workers that hand on what is left to do, as actors
    /// do, take up any of it.
    pub(super) fn settle_queues(&mut self, id: WorkId) {
        let Some(of) = self.get_mut(id) else { return };
        let doubtful = std::mem::take(&mut of.doubtful_queues);
        let ended = of.request.as_ref().map_or(0, |request| request.ended);
        for DoubtfulQueue { until, by_idle } in doubtful {
            let under_way = self.under_way_until(id, until, ended);
            if let Some((end, work)) = under_way.zip(self.get_mut(id)) {
                // A thread that had nothing to do would have taken it from a queue at once.
                work.shorten_queue(until, if by_idle { until } else { end });
            }
        }
    }

    /// Until when, up to that moment, threads may have worked for it to which it was handed, over any number
    /// of them. `None`: none has worked. A thread that works on long after its end works for another.
    fn under_way_until(&self, id: WorkId, before: u64, ended: u64) -> Option<u64> {
        let mut until = None;
        let mut left = vec![id];
        let mut looked_at = 0;
        while let Some(id) = left.pop() {
            let handed = self.get(id).map_or(&[][..], |of| &of.handed);
            for part in handed.iter().rev().take(LATEST) {
                let is_open = self.root(*part) == Some(*part);
                let Some(of) = self.works.get(part).filter(|_| is_open) else {
                    continue;
                };
                let goes_on = of
                    .known_until()
                    .is_some_and(|end| end > ended + WORKS_ON_NS);
                if !goes_on && of.worked(0, before) >= DOUBTFUL_FROM_NS {
                    until = until.max(of.worked_until(before));
                }
                looked_at += 1;
                if looked_at < MOST_LOOKED_AT {
                    left.push(*part);
                }
            }
        }
        until
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
    use super::super::item::Item;
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
