//! Messages that a server pushes: what came in on one connection is sent on others as well, where nobody
//! asked for it just then, as brokers and chat servers do. It looks like more of the answer that was sent
//! there before.
//!
//! A thread that receives a request, sends on such a socket and then answers that request, without a wait or
//! another receive in between, has pushed. If it answers first and then sends there, or not at all, it most
//! likely has. One that goes on with an answer has another reason: a timer, room in the socket, what another
//! server said. What is more usual in a process decides what its doubtful sends are.

use rustc_hash::FxHashMap;
use tailscope_signals::slice::Slice;

use super::Requests;
use super::request::{Answered, Request};
use super::thread::Thread;
use super::work::WorkId;

/// The most processes that are remembered.
const MOST: usize = 4096;
/// Votes for pushes, less those against them, from which on a process counts as one that pushes,
const SURE_VOTES: i8 = 24;
/// and from which on more are not counted.
const MOST_VOTES: i8 = 64;
/// How many votes a send has that is before an answer, or that has another reason,
const CLEAR: i8 = 8;
/// and how many one that is after an answer, or without one: a loop may do both one after the other.
const LIKELY: i8 = 1;
/// What comes in at least this long after a confirmation is not a part of it.
const CONFIRMED_NS: u64 = 100_000_000;

/// What the sends of processes were that nobody asked for.
#[derive(Debug, Default)]
pub(super) struct Pushers(FxHashMap<u32, i8>);

impl Pushers {
    fn vote(&mut self, pid: u32, votes: i8) {
        if self.0.len() >= MOST && !self.0.contains_key(&pid) {
            self.0.clear(); // those that live on come again
        }
        let of = self.0.entry(pid).or_default();
        *of = (*of + votes).clamp(-MOST_VOTES, MOST_VOTES);
    }

    fn has(&self, pid: u32) -> bool {
        self.0.get(&pid).is_some_and(|votes| *votes >= SURE_VOTES)
    }

    pub(super) fn forget(&mut self, pid: u32) {
        self.0.remove(&pid);
    }
}

/// Why a thread sends on a socket where all that was asked has an answer.
enum Reason {
    /// It goes on with that answer.
    GoesOn,
    /// It has received this request and nothing else,
    Received(WorkId),
    /// or has also answered it.
    Answered,
    /// It does what it does for another request.
    OfAnother,
    /// The same, but a timer has run out.
    Timer,
    /// None of these: what it sends is its answer.
    Own,
}

impl Requests {
    /// Whether a send on the socket of this request is pushed to its client, so that it is no answer.
    pub(super) fn is_pushed(&mut self, thread: &mut Thread, work: WorkId, slice: &Slice) -> bool {
        let Some(request) = self.works.get(work).and_then(|of| of.request.as_ref()) else {
            return false;
        };
        if request.ended == 0 {
            return self.is_pushed_before_answer(thread, work, slice);
        }
        let of_stream = self
            .sockets
            .get(&slice.socket)
            .is_some_and(|s| s.stream != 0);
        if slice.datagram || of_stream || request.waits_for_room() {
            return false; // its end is known, or it could not be sent at once
        }
        let reason = self.reason(thread, work, slice.at);
        match reason {
            Reason::Received(by) => self.note_push(thread, by),
            Reason::Answered if !std::mem::replace(&mut thread.pushed, true) => {
                self.pushers.vote(slice.pid, LIKELY);
            }
            Reason::Own => self.pushers.vote(slice.pid, -CLEAR),
            _ => {}
        }
        match reason {
            Reason::Received(_) | Reason::Answered | Reason::OfAnother => {
                if let Some(socket) = self.sockets.get_mut(&slice.socket) {
                    socket.is_listener = true;
                }
                if self.pushers.has(slice.pid) {
                    return true;
                }
                self.remember_end(work);
            }
            Reason::GoesOn if !self.has_turn(thread, work) => {} // of a push, too
            Reason::GoesOn | Reason::Timer | Reason::Own => {
                if let Some(request) = self.request_mut(work) {
                    request.before_pushes = None;
                }
            }
        }
        false
    }

    /// Whether the thread's latest request, since its last wait, came in on another socket than that of this
    /// send, and no timer has run out.
    pub(super) fn is_in_turn_elsewhere(&self, thread: &Thread, slice: &Slice) -> bool {
        let of = thread.turn.and_then(|turn| self.works.get(turn));
        let request = of.and_then(|of| of.request.as_ref());
        !thread.has_timer_at(slice.at) && request.is_some_and(|of| of.socket != slice.socket)
    }

    /// Whether a send where nothing is open is pushed.
    pub(super) fn is_push_for_another(&self, thread: &Thread, slice: &Slice) -> bool {
        thread.turn.is_some() && self.pushers.has(slice.pid)
    }

    /// The same where the request has no answer yet, and its client has had none to what it said before.
    fn is_pushed_before_answer(
        &mut self,
        thread: &mut Thread,
        work: WorkId,
        slice: &Slice,
    ) -> bool {
        if self.has_turn(thread, work) {
            if std::mem::take(&mut thread.pushed) {
                self.pushers.vote(slice.pid, CLEAR);
            }
            return false;
        }
        let reason = self.reason(thread, work, slice.at);
        let socket = self.sockets.get(&slice.socket);
        let says_only = socket.is_some_and(|socket| socket.says_only);
        let is_message = says_only && self.request_mut(work).is_some_and(|of| of.pushed);
        let of_another = matches!(reason, Reason::Received(_) | Reason::OfAnother);
        let is_push = of_another && is_message && self.pushers.has(slice.pid);
        if !is_push && !self.is_push_to_listener(thread, work, slice, &reason) {
            thread.pushed = false;
            return false;
        }
        if let Reason::Received(by) = reason {
            self.note_push(thread, by);
        }
        true
    }

    /// Whether a send is pushed to a client that has had a message for which it had not asked. Such a client
    /// may confirm its messages. Nobody answers that, so the next message looks like the answer. The
    /// client of a long poll has only what it asked for.
    fn is_push_to_listener(
        &mut self,
        thread: &Thread,
        work: WorkId,
        slice: &Slice,
        reason: &Reason,
    ) -> bool {
        let is_listener = self
            .sockets
            .get(&slice.socket)
            .is_some_and(|socket| socket.is_listener);
        if !is_listener || self.may_be_for(thread, work) {
            return false;
        }
        match reason {
            Reason::Received(_) | Reason::Answered => self.pushers.vote(slice.pid, LIKELY),
            Reason::OfAnother => {}
            Reason::Own => {
                self.pushers.vote(slice.pid, -CLEAR);
                return false;
            }
            Reason::GoesOn | Reason::Timer => return false,
        }
        let is_push = self.pushers.has(slice.pid);
        if let Some(request) = self.request_mut(work).filter(|_| is_push) {
            request.confirms = true;
        }
        is_push
    }

    /// Whether the thread may have this work in hand: it came in since the thread waited, or was handed to it.
    fn may_be_for(&self, thread: &Thread, work: WorkId) -> bool {
        let is = |of: &WorkId| self.works.root(*of) == Some(work);
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        owner.is_some_and(|owner| owner == work || self.works.woken_for(owner) == Some(work))
            || self.received_at(thread, work).is_some()
            || thread.handed_on.iter().any(is)
    }

    /// What is sent next may be no part of its answer.
    fn remember_end(&mut self, work: WorkId) {
        if let Some(request) = self.request_mut(work) {
            request.before_pushes.get_or_insert(Answered {
                at: request.ended,
                tid: request.tid,
                cpu: request.cpu,
                held: request.held,
            });
        }
    }

    /// The thread has received that, and sends it to others.
    fn note_push(&mut self, thread: &mut Thread, message: WorkId) {
        thread.pushed = true;
        if let Some(message) = self.request_mut(message) {
            message.pushed = true;
        }
    }

    fn reason(&self, thread: &Thread, work: WorkId, at: u64) -> Reason {
        let owner = thread.owner.and_then(|owner| self.works.root(owner));
        if self.has_turn(thread, work) || (owner.is_none() && thread.after == Some(work)) {
            return Reason::GoesOn;
        }
        let of = match owner {
            Some(owner) => self.works.woken_for(owner),
            None => thread.after,
        };
        // What the thread has just answered was a request, also if that has ended.
        let of_another =
            of.is_some_and(|of| of != work && (owner.is_none() || !self.works.is_nobodys(of)));
        if !of_another {
            return Reason::Own;
        }
        let only_one = thread.has_received_only_one();
        match owner {
            _ if thread.has_timer_at(at) => Reason::Timer,
            Some(owner)
                if only_one && self.works.is_live(owner) && self.has_turn(thread, owner) =>
            {
                Reason::Received(owner)
            }
            None if only_one => Reason::Answered,
            _ => Reason::OfAnother,
        }
    }

    /// Whether this is the request that the thread received last, since it waited.
    fn has_turn(&self, thread: &Thread, work: WorkId) -> bool {
        thread.turn.and_then(|of| self.works.root(of)) == Some(work)
    }

    /// More comes in where a request has no answer, ready at this moment. Returns whether what came before was
    /// no request: a message that was pushed to others, or a confirmation. Where a client confirms, what
    /// comes in much later does not belong to what came before.
    pub(super) fn was_message(&mut self, work: WorkId, ready: u64) -> bool {
        let Some(request) = self.request_mut(work) else {
            return false;
        };
        let (pid, of) = (request.pid, request.socket);
        let comes_later = ready > request.ready.max(request.latest) + CONFIRMED_NS;
        let confirms = request.confirms;
        // More of the same may come.
        let is_pushed = std::mem::take(&mut request.pushed);
        let socket = self.sockets.entry(of).or_default();
        socket.confirms |= confirms;
        if confirms || (socket.confirms && comes_later) {
            return true;
        }
        if !is_pushed {
            return false;
        }
        self.pushers.vote(pid, LIKELY);
        let was = self.pushers.has(pid);
        socket.says_only |= was;
        was
    }

    /// The request's answer ended before what was pushed behind it, if that is what its process does.
    pub(super) fn leave_out_pushes(&self, request: &mut Request) {
        let end = request.before_pushes.take();
        if let Some(end) = end.filter(|_| self.pushers.has(request.pid)) {
            (request.ended, request.tid, request.cpu) = (end.at, end.tid, end.cpu);
            request.held = end.held;
        }
    }

    fn request_mut(&mut self, work: WorkId) -> Option<&mut Request> {
        self.works.get_mut(work)?.request.as_mut()
    }
}
