//! What a thread goes on with when it has received something, and what it did before that.

use super::act::MOST_WAITING;
use super::item::Item;
use super::thread::Thread;
use super::work::WorkId;
use super::{Requests, SHOWS_FROM_NS};

impl Requests {
    /// The thread goes on with this work, which it has just received. `ready`: since when it could.
    pub(super) fn turn_to(&mut self, thread: &mut Thread, work: WorkId, ready: u64, at: u64) {
        let had_cpu_from = self.begin_turn(thread, work, ready, at);
        self.queued_behind(thread, work, (ready, at), had_cpu_from);
    }

    /// The same of a request that the thread may have left where it was, although it had nothing to do.
    pub(super) fn turn_to_left(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        (ready, answered): (u64, u64),
        at: u64,
    ) {
        let idle = thread.idle_in(ready.max(answered), at);
        let had_cpu_from = self.begin_turn(thread, work, ready, at);
        let mut from = ready;
        for idle in idle {
            self.queued_behind(thread, work, (from, idle.from), had_cpu_from);
            if let Some(of) = self.works.get_mut(work).filter(|_| idle.by_timer) {
                of.add(Item::Timer {
                    from: idle.from,
                    to: idle.to,
                });
            }
            from = idle.to;
        }
        self.queued_behind(thread, work, (from, at), had_cpu_from);
    }

    /// The same of a request that had come before its connection was accepted.
    pub(super) fn turn_to_unaccepted(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        ready: u64,
        at: u64,
    ) {
        self.begin_turn(thread, work, ready, at);
        if let Some(of) = self.works.get_mut(work) {
            of.add(Item::Accept {
                from: ready,
                to: at,
            });
        }
    }

    /// What both have in common. Returns since when of that time the thread had a CPU.
    fn begin_turn(&mut self, thread: &mut Thread, work: WorkId, ready: u64, at: u64) -> u64 {
        let did = thread.take_since_data(ready);
        thread.timer = None;
        match (thread.owner, thread.after) {
            // The thread that woke it released a lock, and handed nothing over.
            (Some(part), _) if !did.is_empty() && thread.unproven => {
                self.goes_on_itself(part);
                self.deliver(thread, Some(work), at);
            }
            (None, None) => self.deliver(thread, Some(work), at), // it came from a wait for this
            (owner, _) => {
                self.learn_when_it_works(thread);
                self.deliver(thread, owner, at);
                self.take_dispatched(thread, work, ready);
                let own = owner.filter(|own| self.works.is_nobodys(*own));
                if let Some(own) = own.and_then(|own| self.works.get_mut(own)) {
                    own.turned_to = Some(work);
                }
            }
        }
        let mut had_cpu_from = ready;
        if let Some(woke) = &thread.woke
            && woke.to > ready
            && let Some(of) = self.works.get_mut(work)
        {
            of.add(Item::Slice(woke.after(ready)));
            had_cpu_from = woke.to.min(at);
        }
        if let Some(first) = did.first() {
            had_cpu_from = first.to.clamp(ready, at);
        }
        if let Some(of) = self.works.get_mut(work) {
            let did = did.iter().filter(|part| part.to > ready);
            did.for_each(|part| of.add(Item::Slice(part.after(ready))));
        }
        thread.owner = Some(work);
        thread.after = None;
        thread.handed = false;
        thread.unproven = false;
        thread.let_go();
        if !thread.pending.iter().any(|(of, _)| *of == work) {
            if thread.pending.len() >= MOST_WAITING {
                thread.pending.pop_front();
            }
            thread.pending.push_back((work, at));
        }
        had_cpu_from
    }

    /// A thread that has received a request, worked for long, and receives again, has worked for the first.
    fn learn_when_it_works(&self, thread: &mut Thread) {
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        let received = owner.and_then(|owner| self.received_at(thread, owner));
        let began = thread.run.first().map(|first| first.from);
        if received.is_some() && began == received && thread.ran_ns() >= SHOWS_FROM_NS {
            thread.has_worked_at_receive();
        }
    }

    /// The thread was woken by one that waits for data of all connections and serves none itself: what both
    /// have done since this came was for it. A thread of a runtime may do any other work in between.
    fn take_dispatched(&mut self, thread: &Thread, work: WorkId, ready: u64) {
        let woken = thread.owner.filter(|_| thread.unproven);
        let part = woken.and_then(|part| self.works.get(part));
        let Some(part) = part.filter(|part| part.request.is_none() && !part.proven) else {
            return;
        };
        let by = part.hint.and_then(|by| self.works.get(by));
        let waker = part.by.and_then(|by| self.threads.get(&by));
        let only_waits = waker.is_some_and(|waker| waker.serves_nobody());
        let Some(by) = by.filter(|by| only_waits && by.from_sockets && !by.proven) else {
            return;
        };
        let items = by.items.iter().chain(&part.items);
        let did = items.filter_map(|item| match item {
            Item::Slice(of) if of.to > ready => Some(Item::Slice(of.after(ready))),
            _ => None,
        });
        let did: Vec<_> = did.collect();
        if let Some(of) = self.works.get_mut(work) {
            did.into_iter().for_each(|item| of.add(item));
        }
    }

    /// What came in begins no request that can be followed.
    pub(super) fn pass_over(&mut self, thread: &mut Thread, at: u64) {
        let owner = thread.owner.take();
        self.deliver(thread, owner, at);
        thread.after = None;
        thread.timer = None;
    }
}
