//! Answers: whose a thread's slice was, as its send on an accepted socket shows.

use tailscope_signals::slice::Slice;

use super::item::Item;
use super::request::Held;
use super::thread::Thread;
use super::work::WorkId;
use super::{DOUBTFUL_FROM_NS, Requests, SHOWS_FROM_NS, link};

/// A thread that answers so soon after another answer may have done nothing but send it,
const TOGETHER_NS: u64 = 100_000;
/// if that is so small a part of what it did before the other.
const SMALL_PART: u64 = 8;

impl Requests {
    /// A send on a socket that this process accepted: it answers the request that is open there.
    pub(super) fn answer(&mut self, thread: &mut Thread, slice: &Slice) {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        if socket.frames.is_some() {
            self.send_encrypted(slice);
            return;
        }
        socket.answered = socket.lost;
        let asked = socket.asked && !socket.lost;
        let open = match slice.datagram {
            true => self.answered_datagram(thread, slice.socket),
            false => socket.open.and_then(|work| self.works.root(work)),
        };
        let Some(work) = open else {
            let owner = thread.owner;
            let is_unasked = asked && self.is_in_turn_elsewhere(thread, slice);
            if let Some(socket) = self.sockets.get_mut(&slice.socket) {
                let goes_on = owner.is_none() && thread.after.is_some();
                socket.in_parts |= slice.datagram && goes_on && socket.datagrams.is_empty();
                socket.is_listener |= is_unasked && !slice.datagram && socket.stream == 0;
            }
            // What comes before the first request is a greeting.
            let is_more = asked && owner.is_none() && !self.is_push_for_another(thread, slice);
            self.missed.continued += u64::from(is_more);
            self.deliver(thread, owner, slice.at);
            return;
        };
        if self.is_pushed(thread, work, slice) {
            return;
        }
        self.keep_what_was_handed_over(thread, work, slice.tid);
        self.claim(thread, work, slice.tid, slice.at);
        self.settle_pending(thread, work, slice.at);
        if let Some(request) = self
            .works
            .get_mut(work)
            .and_then(|work| work.request.as_mut())
        {
            request.ended = slice.at;
            request.held = Held::at_send(slice.since);
            (request.tid, request.cpu) = (slice.tid, slice.cpu);
        }
        if slice.datagram {
            self.close_datagram(thread, work, slice.tid);
        }
        thread.owner = None;
        thread.result = None;
        thread.after = Some(work);
        thread.handed = false;
        thread.answered = thread.answered.saturating_add(1);
    }

    /// The thread answers, or asks, for the work of its slice, which it had handed to others, and none of
    /// them has shown that it took it: they were woken for something else.
    pub(super) fn keep_what_was_handed_over(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        tid: u32,
    ) {
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        let is_own = thread.handed && owner == self.works.root(work);
        if !is_own || self.works.is_taken(work) {
            return;
        }
        thread.handed = false;
        if let Some(of) = self.works.get_mut(work) {
            of.keep_tail(tid, thread.handed_from);
        }
    }

    /// TCP had kept back the end of an answer. Until then the client waited for it.
    pub(super) fn pass_on(&mut self, slice: &Slice) {
        let open = self.sockets.get(&slice.socket).and_then(|s| s.open);
        let work = open.and_then(|work| self.works.root(work));
        let request = work.and_then(|work| self.works.get_mut(work)?.request.as_mut());
        let Some(request) = request else { return };
        let before = request.before_pushes.as_mut();
        let ends = before.map(|end| (end.at, &mut end.held));
        for (ended, held) in ends.into_iter().chain([(request.ended, &mut request.held)]) {
            if let Some(Held::Still { why }) = *held {
                *held = Some(match slice.since {
                    0 => Held::Unseen { why },
                    since => Held::Until {
                        ns: since.saturating_sub(ended),
                        why,
                    },
                });
            }
        }
    }

    /// The slice so far was for this work: the thread has sent its answer.
    fn claim(&mut self, thread: &mut Thread, work: WorkId, tid: u32, at: u64) {
        self.turn_to_own_part(thread, work);
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        match owner {
            Some(owner) if owner == work => {}
            Some(owner) if self.works.is_nobodys(owner) => {
                self.works.take_result(owner, work);
                if self.goes_on_with(thread, owner, work) {
                    // Woken for another request, the thread has gone on with its own.
                } else {
                    let timer = self.works.get(owner).and_then(|part| part.timer);
                    self.waited_for_timer(work, timer);
                    if let Some((since, began)) = self.waited_for(thread, owner, work) {
                        self.queued_until(thread, work, since, began);
                    }
                }
                if self.works.woken_for(owner) != Some(work) {
                    self.goes_on_itself(owner);
                }
                self.works.merge(owner, work);
            }
            Some(owner) => {
                let place = thread
                    .pending
                    .iter()
                    .position(|(of, _)| self.works.root(*of) == Some(work));
                let mended = place.is_none() && self.mend(owner, work);
                let in_order = place == Some(0);
                let long = thread.run_ns() >= DOUBTFUL_FROM_NS && self.works.is_live(owner);
                let known = thread.works_at_receive();
                let was_done = long
                    && match known {
                        Some(at_receive) => at_receive && self.has_received(thread, work, owner),
                        None => self.was_done_before(thread, work, owner),
                    };
                if was_done {
                    self.deliver(thread, Some(owner), at);
                }
                let is_guess = was_done && known.is_none();
                if mended || (long && (is_guess || !in_order)) {
                    for of in [owner, work] {
                        if let Some(of) = self.works.get_mut(of) {
                            of.ambiguous = true;
                        }
                    }
                }
            }
            None => {
                self.look_back_at_answer(thread, work);
                let timer = match self.is_received_by(work, tid) {
                    true => thread.take_timer(),
                    false if self.works.is_taken(work) => thread.timer,
                    false => thread.timer.or(thread.timer_of_waker),
                };
                self.waited_for_timer(work, timer);
                if !self.keep_held(thread, work, thread.timer) {
                    self.claim_back(thread, work);
                }
            }
        }
        self.deliver(thread, Some(work), at);
        thread.let_go();
    }

    /// Whether the thread sends the answer to a request when it is done with another one: since it received
    /// this one it has not waited, and has worked for it as long as then for the other.
    fn was_done_before(&self, thread: &Thread, work: WorkId, other: WorkId) -> bool {
        let received = self.received_at(thread, work).zip(self.works.get(work));
        self.has_received(thread, work, other)
            && received.is_some_and(|(at, of)| of.worked(at, u64::MAX) * 2 >= thread.run_ns())
    }

    /// Whether the thread has received both, and gone on with neither since.
    fn has_received(&self, thread: &Thread, work: WorkId, other: WorkId) -> bool {
        let mut both = [work, other].into_iter();
        both.all(|work| self.received_at(thread, work).is_some())
    }

    /// When the thread received this work, with which it has not gone on since.
    pub(super) fn received_at(&self, thread: &Thread, work: WorkId) -> Option<u64> {
        let mut pending = thread.pending.iter();
        let found = pending.find(|(of, _)| self.works.root(*of) == Some(work));
        found.map(|(_, at)| *at)
    }

    /// The thread had received this request before it did what it answered another with just now. It has
    /// worked for this one since, or has done nothing: some of what it did before may have been for this one.
    fn look_back_at_answer(&mut self, thread: &mut Thread, work: WorkId) {
        let received = self.received_at(thread, work);
        let Some((received, (other, from, to))) = received.zip(thread.latest()) else {
            return;
        };
        let run = thread.run_ns();
        if thread.after != Some(other) {
            return;
        }
        if run >= TOGETHER_NS {
            if thread.ran_ns() >= SHOWS_FROM_NS && received < to {
                thread.has_worked_later();
            }
            return;
        }
        if thread.works_at_receive() == Some(true) {
            return;
        }
        let before = to.saturating_sub(from.max(received));
        let is_third =
            to - from < TOGETHER_NS && self.works.get(other).is_some_and(|other| other.ambiguous);
        if is_third || before >= DOUBTFUL_FROM_NS.max(run * SMALL_PART) {
            for of in [other, work] {
                if let Some(of) = self.works.get_mut(of) {
                    of.ambiguous = true;
                }
            }
        }
    }

    /// Whether this thread has received the request: an event loop answers what it receives.
    fn is_received_by(&self, work: WorkId, tid: u32) -> bool {
        let request = self.works.get(work).and_then(|of| of.request.as_ref());
        request.is_some_and(|request| request.received_by == tid)
    }

    /// A thread goes on with this work because of a timer, which ran out at that moment: until then the work
    /// waited for it. If the work has asked a server and closed that connection, it gave up on the server.
    fn waited_for_timer(&mut self, work: WorkId, timer: Option<u64>) {
        let of = timer.zip(self.works.get(work));
        let Some((over, of)) = of.filter(|(_, of)| !of.is_answered()) else {
            return;
        };
        let from = of.known_until().unwrap_or(over);
        if of.asks.is_empty() {
            if let Some(of) = self.works.get_mut(work).filter(|_| from < over) {
                let from = of.take_back_queue(from).unwrap_or(from);
                of.add(Item::Timer { from, to: over });
            }
            return;
        }
        let calls = of.asks.iter().filter(|(_, sent)| *sent < over);
        let mut calls = calls.filter_map(|call| Some((*call, self.sockets.get(&call.0)?)));
        let Some((call, socket)) = calls.find(|(_, socket)| socket.closed) else {
            return;
        };
        let gave_up = Item::Downstream {
            sent: call.1,
            ready: over,
            received: over,
            peer: socket.whom(),
            connection: link::connection(&socket.peer, socket.stream),
            guess: false,
            again: false,
        };
        if let Some(of) = self.works.get_mut(work) {
            of.asks.retain(|other| *other != call);
            of.add(gave_up);
        }
    }

    /// Of several results that came in together, the one that was made for this work is its own.
    fn turn_to_own_part(&mut self, thread: &mut Thread, work: WorkId) {
        let is_part = |of: WorkId| {
            self.works.is_nobodys(of) && self.works.woken_for(of) == self.works.root(work)
        };
        let is_other = thread
            .owner
            .is_none_or(|of| self.works.is_nobodys(of) && !is_part(of));
        let part = thread.pending.iter().find(|(of, _)| is_part(*of));
        if let Some((part, _)) = part.copied().filter(|_| is_other) {
            self.works.merge(part, work);
            thread.owner = Some(work);
        }
    }

    /// The thread goes on with the work that it had in hand when it waited: that was the work's wait. False
    /// if it had another. `timer`: when a timer let it go on, if one did.
    pub(super) fn keep_held(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        timer: Option<u64>,
    ) -> bool {
        let held = thread.held.and_then(|held| self.works.root(held));
        let may_have_asked = self.works.may_have_asked(work);
        let Some(of) = self.works.get_mut(work).filter(|_| held == Some(work)) else {
            return false;
        };
        // What another thread did, or heard of another server, comes first.
        let as_item = match may_have_asked || !of.handed.is_empty() {
            true => Item::Tail,
            false => Item::Slice,
        };
        // Where it asks nobody, it waited for the timer alone.
        let sleeps = timer.is_some() && of.asks.is_empty();
        for wait in thread.take_waits() {
            of.add(as_item(if sleeps { wait.into_sleep() } else { wait }));
        }
        true
    }

    /// The thread had this work in hand and waited, until another woke it, which waits for timers and had
    /// just come from one: the work waited for that.
    fn keep_sleep(&mut self, thread: &mut Thread, owner: WorkId, work: WorkId) -> bool {
        let held = thread.held.and_then(|held| self.works.root(held));
        let by_timers_thread = self
            .works
            .woken_for(owner)
            .is_some_and(|by| by != owner && self.works.is_nobodys(by));
        let timer = self.works.get(owner).and_then(|part| part.timer);
        let timer = timer.filter(|_| held == Some(work) && by_timers_thread);
        let over = timer.filter(|timer| thread.latest_wait().is_some_and(|w| w.ends_at(*timer)));
        let of = self.works.get_mut(work).filter(|of| of.asks.is_empty());
        if let Some((to, of)) = over.zip(of)
            && let Some((did, from, latest)) = thread.take_latest_waits()
        {
            let woke = latest.after(to);
            let did = did.into_iter().chain([woke]);
            did.for_each(|part| of.add(Item::Slice(part)));
            of.add(Item::Timer { from, to });
            return true;
        }
        false
    }

    /// Whether the thread had this work in hand when it was woken for `owner`. Its wait was the work's.
    fn goes_on_with(&mut self, thread: &mut Thread, owner: WorkId, work: WorkId) -> bool {
        if self.works.woken_for(owner) == Some(work) {
            thread.let_go();
        }
        let goes_on =
            self.keep_sleep(thread, owner, work) || self.keep_held(thread, work, thread.timer);
        if goes_on && let Some(of) = self.works.get_mut(owner) {
            of.hint = None;
        }
        goes_on
    }

    /// The answer of another server, which was taken for `owner`'s by a guess, was for `work`. False if
    /// it was no guess.
    fn mend(&mut self, owner: WorkId, work: WorkId) -> bool {
        let Some(guessed) = self.works.get_mut(owner) else {
            return false;
        };
        let is_guess = |item: &Item| matches!(item, Item::Downstream { guess: true, .. });
        let Some(last) = guessed.items.iter().rposition(is_guess) else {
            return false;
        };
        let item = guessed.items.remove(last);
        if let Some(work) = self.works.get_mut(work) {
            work.add(item);
        }
        true
    }
}
