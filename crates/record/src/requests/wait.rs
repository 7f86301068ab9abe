//! Waits and wake-ups: whether a wait is part of a slice, and for whom a thread goes on after it.

use tailscope_signals::abi;
use tailscope_signals::slice::{RECEIVES, SENDS, Slice};

use super::Requests;
use super::item::Segment;
use super::thread::{Idle, Thread, Wait, since_waking};
use super::work::WorkId;
use super::works::Handed;

/// So much that it handed to threads between two of its waits is remembered.
const MOST_HANDED_ON: usize = 64;

/// What a timer let go on counts as the timer's for this long, whichever thread it is handed to.
const INHERITS_NS: u64 = 2_000_000;

/// A wait that has ended.
struct Ended {
    of: Wait,
    /// When the thread was woken.
    woken: u64,
    is_lock: bool,
    is_network: bool,
    /// Nobody woke it: the longest time was over for which it would wait.
    timed_out: bool,
    /// It is an event loop that waits for its thread of sockets, and for its timers.
    is_loop_at_rest: bool,
}

impl Requests {
    /// The thread leaves its CPU. If it can't go on, what it did so far is known to be its owner's. Only the
    /// end of the wait shows what the wait is.
    pub(super) fn block(&mut self, thread: &mut Thread, slice: &Slice, cause: u8) {
        thread.add(thread.segment(slice));
        if u32::from(cause) == abi::TS_PREEMPTED {
            return;
        }
        let (futex, most) = match u32::from(cause) {
            abi::TS_LOCK => (slice.since, 0),
            abi::TS_NETWORK => (0, slice.since),
            _ => (0, 0),
        };
        if let Some(owner) = thread.owner {
            // It was woken for work that another thread has taken. A thread that hands work on has found some.
            let found_nothing = thread.unproven && !thread.handed && thread.is_idle_at(futex);
            if found_nothing {
                thread.handed = true;
                self.goes_on_itself(owner);
            }
            self.deliver(thread, Some(owner), slice.at);
            let for_lock = u32::from(cause) == abi::TS_LOCK && thread.idle_at != 0;
            let may_be_idle = thread.is_idle_at(futex) || thread.changes_its_place();
            let is_left = thread.handed && (!for_lock || may_be_idle);
            if let Some(of) = self.works.get_mut(owner) {
                of.is_left |= is_left;
            }
        }
        if u32::from(cause) == abi::TS_NETWORK {
            thread.waits_at_most(slice.at, most);
        }
        thread.blocked = Some(Wait {
            since: slice.at,
            cause,
            futex,
            sends: slice.length == SENDS,
            receives: slice.length == RECEIVES,
        });
        thread.given = None;
        thread.result = None;
        thread.end_turn();
    }

    /// What was handed over was nothing to do, or something else: so the thread that did so goes on with its
    /// work. Who takes work from a queue may wake the next one that waits there.
    pub(super) fn goes_on_itself(&mut self, part: WorkId) {
        let Some((of, by)) = self.works.get(part).and_then(|part| part.hint.zip(part.by)) else {
            return;
        };
        let (of, tid) = (self.works.root(of), by);
        let Some(by) = self.threads.get_mut(&tid) else {
            return;
        };
        if of.is_none() || by.owner.and_then(|owner| self.works.root(owner)) != of {
            return;
        }
        let handed_from = by.handed.then_some(by.handed_from);
        by.take_back();
        if !by.handed
            && let Some(of) = of.and_then(|of| self.works.get_mut(of))
        {
            of.is_left = false;
            if let Some(since) = handed_from {
                of.keep_tail(tid, since);
            }
        }
    }

    /// Whether the thread's own work goes on in this wait: it has not handed it to another thread, and it has
    /// no answer yet. A thread that it made may be for something else, as for a log.
    fn works_on(&self, thread: &Thread, wait: &Wait) -> bool {
        let keeps = !thread.handed || (thread.has_only_made && !thread.is_idle_at(wait.futex));
        keeps && thread.owner.is_some_and(|owner| self.works.is_live(owner))
    }

    /// When a timer let the waker go on, for a thread that had no request in hand.
    fn timer_of_waker(&self, thread: &Thread, given: Option<Handed>) -> Option<u64> {
        let in_hand = thread.held.is_some_and(|work| self.works.is_live(work));
        given.filter(|_| !in_hand)?.timer
    }

    /// Whether a thread that serves nobody waits for something to do, and what it has begun by itself is done.
    fn waits_for_timers(&self, thread: &Thread, futex: u64) -> bool {
        let own = thread.owner.and_then(|owner| self.works.get(owner));
        let by_itself = own.is_some_and(|of| of.request.is_none() && of.hint.is_none());
        let is_idle = thread.idle_at == 0 || thread.is_idle_at(futex);
        by_itself && is_idle && thread.serves_nobody()
    }

    /// Whether a thread that is woken may have waited for something to do.
    fn may_be_idle(&self, thread: &Thread, wait: &Wait, cause: u8) -> bool {
        match u32::from(cause) {
            abi::TS_NETWORK => true,
            abi::TS_LOCK if thread.idle_at != 0 => {
                let asks = |owner| self.works.get(owner).is_some_and(|of| of.proven);
                let has_asked = thread.owner.is_some_and(asks);
                thread.is_idle_at(wait.futex) || (thread.changes_its_place() && !has_asked)
            }
            _ => !self.works_on(thread, wait),
        }
    }

    /// Whether a short wait for a lock lies between two parts of the same work. The thread may have woken
    /// another, or may just have answered: it does not wait for work, which it does elsewhere.
    fn is_on_its_way(&self, thread: &Thread, waited: Wait, woken: u64) -> bool {
        let elsewhere = thread.idle_at != 0 && !thread.is_idle_at(waited.futex);
        let short = !waited.is_long(woken);
        let busy = match thread.owner {
            Some(owner) => self.works.is_live(owner),
            None => thread.after.is_some(),
        };
        elsewhere && short && busy && thread.given.is_none()
    }

    pub(super) fn run(&mut self, thread: &mut Thread, slice: &Slice, cause: u8) {
        let wait = thread.segment(slice);
        if u32::from(cause) == abi::TS_PREEMPTED {
            thread.add(match thread.is_new() {
                true => wait.into_wait_for_cpu(), // which its meter does not know
                false => wait,
            });
            return;
        }
        if u32::from(cause) == abi::TS_STOPPED {
            thread.stopped = Some(wait.clone());
        }
        let woken = if slice.since == 0 {
            wait.from
        } else {
            slice.since
        };
        let Some(waited) = thread.blocked.take() else {
            thread.forget();
            return;
        };
        let timed_out = slice.length != 0;
        let is_lock = u32::from(cause) == abi::TS_LOCK;
        // An event loop may wait for its thread of sockets, and for its timers, by a condition variable.
        let is_loop_at_rest =
            is_lock && timed_out && thread.is_idle_at(waited.futex) && thread.serves_several;
        let rests = is_loop_at_rest
            || (is_lock && timed_out && self.waits_for_timers(thread, waited.futex));
        let works_on = thread.given.is_none() && !rests && self.works_on(thread, &waited);
        match u32::from(cause) {
            abi::TS_LOCK | abi::TS_SLEEP if works_on => thread.add(wait),
            abi::TS_LOCK if self.is_on_its_way(thread, waited, woken) => thread.add(wait),
            abi::TS_NETWORK if works_on && waited.sends => thread.add(wait),
            abi::TS_LOCK | abi::TS_SLEEP | abi::TS_NETWORK => {
                let ended = Ended {
                    of: waited,
                    woken,
                    is_lock,
                    is_network: u32::from(cause) == abi::TS_NETWORK,
                    timed_out,
                    is_loop_at_rest,
                };
                self.go_on_after(thread, slice, wait, ended);
            }
            _ => thread.add(wait),
        }
    }

    /// A wait has ended after which the thread may work for somebody else than before.
    fn go_on_after(&mut self, thread: &mut Thread, slice: &Slice, wait: Segment, ended: Ended) {
        let Ended {
            of: waited,
            woken,
            is_lock,
            is_network,
            timed_out,
            is_loop_at_rest,
        } = ended;
        let in_hand = [thread.owner, thread.held].into_iter().flatten();
        let has_nothing = !in_hand.into_iter().any(|work| self.works.is_live(work));
        let is_idle = is_network || (is_lock && thread.is_idle_at(waited.futex));
        if !is_network {
            thread.waits_after_data(&wait);
        }
        self.hold(thread, wait.clone(), is_idle || thread.given.is_some());
        self.settle_all(thread, waited.since);
        let asks = self.asks_for_nobody(thread);
        if asks {
            thread.forget_timers();
        }
        thread.is_made_for_it = false;
        let given = thread.given.take();
        thread.owner = given.map(|work| self.works.begin_handed(work, slice.at));
        thread.handed = false;
        let in_between = match thread.owner {
            Some(_) => false,
            None if is_lock => thread.idle_at != 0 && !thread.is_idle_at(waited.futex),
            None => waited.receives || !is_network,
        };
        let is_free = thread.owner.is_none() && !asks;
        // A thread that looks for work now and then has not waited for a timer.
        let is_loop = is_loop_at_rest || (is_network && thread.receives_requests());
        let may_look = !is_loop && !waited.is_long(woken);
        let by_timer = is_free && timed_out && !thread.only_looks(may_look, woken);
        if is_network && has_nothing && !waited.receives && !waited.sends {
            thread.was_idle(Idle {
                from: waited.since,
                to: woken,
                by_timer,
            });
        }
        if by_timer || !in_between {
            thread.end_wait(by_timer.then_some(woken));
        }
        if !in_between {
            thread.busy_since = woken;
            thread.timer_of_waker = self.timer_of_waker(thread, given).filter(|_| !asks);
        }
        thread.unproven = thread.owner.is_some();
        // One that timed out may have been a sleep.
        if thread.unproven || (waited.is_long(woken) && !timed_out) {
            thread.vote_idle_at(waited.futex);
        }
        let woke = since_waking(&wait, woken);
        if is_network && thread.owner.is_none() {
            thread.take_run(slice.at);
            thread.goes_on_with_data(woken);
            thread.woke = Some(woke);
            thread.after = None;
            return;
        }
        thread.take_run(woken);
        thread.add(woke);
        thread.woke = None;
        if thread.owner.is_some() {
            thread.after = None; // else it just waited for a lock
        }
    }

    /// Whether the thread has asked another server, and nothing has shown for whom.
    fn asks_for_nobody(&self, thread: &Thread) -> bool {
        let of = thread.owner.and_then(|owner| self.works.get(owner));
        of.is_some_and(|of| of.request.is_none() && !of.asks.is_empty())
    }

    /// A thread with work in hand may wait for its own sake, as for a lock of a database or a timeout, and
    /// so may one that has sent a part of its answer: only what it goes on with shows that.
    fn hold(&self, thread: &mut Thread, wait: Segment, is_idle: bool) {
        let in_hand = thread.owner.and_then(|owner| self.works.woken_for(owner));
        let in_hand = in_hand.filter(|of| self.works.is_live(*of) && !self.works.is_nobodys(*of));
        let answered = thread.after.filter(|_| thread.owner.is_none());
        let answered = answered.and_then(|work| self.works.root(work));
        let held = thread.held.and_then(|work| self.works.root(work));
        thread.hold(in_hand.or(answered).or(held), wait, is_idle);
    }

    /// What the thread has not gone on with waits for something else since it blocked.
    fn settle_all(&mut self, thread: &mut Thread, since: u64) {
        thread.handed_on.clear();
        while let Some((work, from)) = thread.pending.pop_front() {
            self.queued(thread, work, from, since);
        }
    }

    /// Whether a thread waits until `other` has done a part of its own work, and not for something to do:
    /// a collector of garbage, or a pool of threads. What a part heard of another server is `downstream`.
    fn waits_for(&self, thread: &Thread, wait: &Wait, other: &Thread) -> bool {
        let part = other.owner.filter(|_| !thread.is_idle_at(wait.futex));
        let whole = thread.owner.filter(|owner| self.works.is_live(*owner));
        let asks = |part| {
            self.works
                .get(part)
                .is_none_or(|of| of.proven || of.is_result)
        };
        part.filter(|part| !asks(*part))
            .zip(whole)
            .is_some_and(|(part, whole)| self.works.was_handed_over(part, whole))
    }

    /// Whether the thread has in hand what the other handed over of its work, directly or through others.
    fn has_part_of(&self, thread: &Thread, other: &Thread) -> bool {
        let both = thread.owner.zip(other.owner);
        both.is_some_and(|(part, whole)| self.works.was_handed_over(part, whole))
    }

    /// The thread wakes another. If that one is idle, it gets the work; else a lock was let go.
    pub(super) fn wake(&mut self, thread: &mut Thread, slice: &Slice, cause: u8) {
        let Some(woken) = self.threads.get(&slice.length) else {
            return;
        };
        let Some(wait) = &woken.blocked else { return };
        if u32::from(cause) == abi::TS_LOCK && self.waits_for(woken, wait, thread) {
            if let Some(woken) = self.threads.get_mut(&slice.length) {
                woken.handed = false; // it goes on with it
                woken.given = None;
            }
            return;
        }
        let brings_result = woken.has_only_made && self.has_part_of(thread, woken);
        if !brings_result && !self.may_be_idle(woken, wait, cause) {
            return;
        }
        let before = woken.owner.filter(|_| brings_result);
        if let Some(of) = before.and_then(|before| self.works.get_mut(before)) {
            of.is_left = true; // it goes on with the result
        }
        let handed = self.hand_over(thread, slice, false);
        if let Some(woken) = self.threads.get_mut(&slice.length)
            && handed.is_some()
        {
            woken.given = handed;
        }
    }

    /// The thread makes another, which may go on with its work.
    pub(super) fn spawn(&mut self, thread: &mut Thread, slice: &Slice) {
        let made = self.threads.get(&slice.length);
        if made.is_some_and(|made| made.last > slice.at) {
            return; // this is read too late
        }
        let handed = self.hand_over(thread, slice, true);
        let owner = handed.map(|handed| self.works.begin_handed(handed, slice.at));
        // An earlier thread of this number has ended.
        let new = Thread::made_for(owner, slice.at);
        self.threads.insert(slice.length, Box::new(new));
    }

    /// The thread hands its work to another, which it has just made or has woken. `None`: it has none.
    fn hand_over(&mut self, thread: &mut Thread, slice: &Slice, is_made: bool) -> Option<Handed> {
        let (work, _) = self.choose(thread, slice.at)?;
        self.deliver(thread, Some(work), slice.at);
        if self.settle_pending(thread, work, slice.at) && thread.handed_on.len() < MOST_HANDED_ON {
            thread.handed_on.push(work);
        }
        thread.owner = Some(work);
        let has_only_made = is_made && (thread.has_only_made || !thread.handed);
        thread.hand_over(true);
        thread.has_only_made = has_only_made;
        let as_result = self.works.get(work).is_some_and(|work| work.proven);
        // A thread that timers let go on may have its work done by others, one right after another.
        let of = self.works.get(work).filter(|of| of.request.is_none());
        let inherited = of.and_then(|of| of.timer);
        let inherited = inherited.filter(|timer| slice.at.saturating_sub(*timer) <= INHERITS_NS);
        let timer = thread.timer.or(inherited);
        thread.goes_on_at_timer(slice.at);
        if let Some(of) = self.works.get_mut(work) {
            of.is_left |= thread.is_made_for_it;
        }
        Some(Handed {
            of: work,
            by: slice.tid,
            as_result,
            timer,
        })
    }
}
