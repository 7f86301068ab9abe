//! How long work waited for a thread, and behind what.

use super::Requests;
use super::item::{Behind, Item};
use super::thread::Thread;
use super::work::{DoubtfulQueue, WorkId};

impl Requests {
    /// The work waited for the thread in that time, behind what the thread then did.
    pub(super) fn queued(&mut self, thread: &Thread, work: WorkId, from: u64, to: u64) {
        self.queued_behind(thread, work, (from, to), from);
    }

    /// The same where the thread had no CPU before `had_cpu_from`: the work is behind what it did then.
    pub(super) fn queued_behind(
        &mut self,
        thread: &Thread,
        work: WorkId,
        (from, to): (u64, u64),
        had_cpu_from: u64,
    ) {
        if from >= to {
            return;
        }
        let behind = self.behind(thread, work, had_cpu_from, to);
        // Where all threads of a process are stopped, the one that waited for data may leave it to
        // another when they go on.
        let stopped = thread.stopped.as_ref().filter(|stopped| stopped.to > from);
        if let Some(work) = self.works.get_mut(work) {
            if let Some(stopped) = stopped {
                work.add(Item::Slice(stopped.after(from)));
            }
            work.add(Item::Queue { from, to, behind });
        }
    }

    fn behind(&self, thread: &Thread, work: WorkId, from: u64, to: u64) -> Option<Behind> {
        let busy = thread.busiest(from, to, work)?;
        let request = self.works.get(busy)?.request.as_ref()?;
        let until = if request.ended == 0 {
            to
        } else {
            request.ended
        };
        Some(Behind {
            name: request.name.clone(),
            peer: request.peer,
            ns: until.saturating_sub(request.ready),
        })
    }

    /// The thread's work, which was nobody's so far, was for `work`. Since when had that been able
    /// to begin, and when did it? `None`: nothing shows that it waited for a thread.
    pub(super) fn waited_for(
        &self,
        thread: &Thread,
        owner: WorkId,
        work: WorkId,
    ) -> Option<(u64, u64)> {
        let of = self.works.get(owner)?;
        if of.busy.is_some() || of.hint.is_none() {
            let is_left = self.waits_for_workers(work);
            return of
                .busy
                .map(|(since, began)| (if is_left { 0 } else { since }, began));
        }
        // Woken for another request, the thread took this one from a queue.
        let woken_for = self.works.woken_for(owner);
        let began = of.known_from().or(thread.run.first().map(|run| run.from))?;
        (woken_for != Some(work) && woken_for.is_none_or(|of| !self.works.is_nobodys(of)))
            .then_some((0, began))
    }

    /// Nothing says how the thread came to this work: what went before its slice?
    pub(super) fn claim_back(&mut self, thread: &mut Thread, work: WorkId) {
        let from = thread
            .run
            .first()
            .map_or(thread.run_from, |first| first.from);
        if self.waits_for_workers(work) {
            self.take_up(thread, work, from);
            return;
        }
        if thread.after.is_some() {
            self.queued_until(thread, work, thread.busy_since, from);
            return;
        }
        if let Some(segment) = thread.woke.take()
            && let Some(of) = self.works.get_mut(work)
        {
            of.add(Item::Slice(segment));
        }
    }

    /// Whether the work was left for threads that take it when they can, and none that waited for some was
    /// woken: all were busy. A thread that sometimes answers itself may be any of a runtime's, and the work
    /// may have waited for a timer.
    fn waits_for_workers(&self, work: WorkId) -> bool {
        let of = self.works.get(work);
        let request = of.filter(|of| of.handed.is_empty() && !of.proven);
        let request = request.and_then(|of| of.request.as_ref());
        let by = request.and_then(|request| self.threads.get(&request.received_by));
        by.is_some_and(|by| by.only_receives())
    }

    /// The thread has taken the work when it was done with its own, or came from a wait for data: what it did
    /// and waited for since was for this.
    fn take_up(&mut self, thread: &mut Thread, work: WorkId, from: u64) {
        let mut did = thread.take_waits_at_work();
        let woke = thread.woke.take().filter(|_| thread.after.is_none());
        did.splice(..0, woke);
        let began = did.first().map_or(from, |first| first.from);
        self.queued_until(thread, work, 0, began);
        if let Some(of) = self.works.get_mut(work) {
            did.into_iter().for_each(|part| of.add(Item::Slice(part)));
        }
    }

    /// The thread was busy since then until it began with this work, so the work waited for it. 0: the thread
    /// had nothing to do, and took the work from a queue.
    pub(super) fn queued_until(&mut self, thread: &Thread, work: WorkId, since: u64, began: u64) {
        let known = self.works.get(work).and_then(|work| work.known_until());
        if let Some(known) = known {
            self.queued(thread, work, known.max(since), began);
            if let Some(of) = self.works.get_mut(work) {
                of.doubt_queue(DoubtfulQueue {
                    until: began,
                    by_idle: since == 0,
                });
            }
        }
    }
}
