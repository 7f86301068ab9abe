//! Calls of other servers: for which work a thread sends one.

use tailscope_signals::slice::Slice;

use super::Requests;
use super::act::MOST_WAITING;
use super::item::Item;
use super::socket::Call;
use super::thread::Thread;
use super::work::WorkId;

impl Requests {
    /// A send to another server.
    pub(super) fn ask(&mut self, thread: &mut Thread, slice: &Slice) {
        let not_handed_on = self.keeps(thread).map(|work| (work, true));
        let chosen = not_handed_on.or_else(|| self.choose(thread, slice.at));
        let (work, guess) = match chosen {
            Some(chosen) => chosen,
            None => (self.begin_nobodys(thread, slice.at), false),
        };
        let mut pending = thread.pending.iter().map(|(of, _)| *of);
        let other = pending.find(|of| *of != work && !self.works.may_have_asked(*of));
        if let Some(of) = other.and_then(|other| self.works.get_mut(other)) {
            of.may_have_asked = true;
            of.ask((0, slice.at));
        }
        self.keep_what_was_handed_over(thread, work, slice.tid);
        self.deliver(thread, Some(work), slice.at);
        self.settle_pending(thread, work, slice.at);
        thread.owner = Some(work);
        thread.result = None;
        thread.handed = false;
        thread.let_go();
        if let Some(of) = self.works.get_mut(work) {
            of.proven = true;
            of.ask((if guess { 0 } else { slice.socket }, slice.at));
        }
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        let full = socket.calls.len() >= MOST_WAITING;
        match socket.calls.back_mut() {
            Some(call) if call.work == work => call.sent = slice.at,
            _ if full => self.missed.forgotten += 1,
            _ => socket.calls.push_back(Call {
                work,
                sent: slice.at,
                guess,
                other,
            }),
        }
    }

    /// More of a call is sent, on a stream that it has for itself.
    pub(super) fn ask_on(&mut self, thread: &mut Thread, slice: &Slice) {
        let Some(socket) = self.sockets.get_mut(&slice.socket) else {
            return;
        };
        socket.touched = slice.at;
        let call = match socket.calls.back_mut() {
            Some(call) => {
                call.sent = slice.at;
                Some(*call)
            }
            None => socket.answers,
        };
        let work = call.and_then(|call| self.works.root(call.work));
        let owner = work.or(thread.owner);
        self.deliver(thread, owner, slice.at);
        thread.owner = owner;
    }

    /// What came in before all that is pending, and that the thread handed to one that it woke. That may
    /// have been for something else: an event loop wakes helpers of its runtime, too.
    fn keeps(&self, thread: &mut Thread) -> Option<WorkId> {
        let works = &self.works;
        let first = thread.pending.front().map(|(work, _)| *work);
        let place = thread.handed_on.iter().position(|of| {
            works.is_live(*of)
                && !works.may_have_asked(*of)
                && first.is_none_or(|first| *of < first)
        })?;
        works.root(thread.handed_on.remove(place))
    }

    /// The thread does something of which only a later send can say for whom it is.
    fn begin_nobodys(&mut self, thread: &mut Thread, at: u64) -> WorkId {
        let has_in_hand = thread.held.is_some_and(|held| self.works.is_live(held));
        let waits = match has_in_hand {
            true => Vec::new(), // whether it goes on with that shows later
            false => thread.take_waits_at_work(),
        };
        let began = waits.iter().chain(&thread.run).next();
        let began = began.map_or(at, |first| first.from);
        let work = self.works.begin(None, at);
        if let Some(of) = self.works.get_mut(work) {
            let was_busy = thread.after.is_some() || thread.passed_on;
            of.busy = was_busy.then_some((thread.busy_since, began));
            let woke = thread.woke.clone().filter(|_| thread.after.is_none());
            of.timer = thread.timer;
            of.from_sockets = woke.is_some();
            let parts = woke.into_iter().chain(waits);
            parts.for_each(|part| of.add(Item::Slice(part)));
        }
        work
    }

    /// For whom the thread does what does not say so, and whether that is a guess: the oldest work that
    /// it has not gone on with, else that of its slice.
    pub(super) fn choose(&mut self, thread: &mut Thread, at: u64) -> Option<(WorkId, bool)> {
        let works = &self.works;
        thread.pending.retain(|(work, _)| works.is_live(*work));
        if let Some((oldest, _)) = thread.pending.front() {
            return Some((works.root(*oldest)?, thread.pending.len() > 1));
        }
        let owner = thread.owner.and_then(|owner| works.root(owner));
        let goes_on = |owner: WorkId| !thread.handed && self.answered_before(owner).is_some();
        let owner = owner.filter(|owner| works.is_live(*owner) || goes_on(*owner));
        owner.map(|owner| (owner, false)).or_else(|| {
            let busy = thread.after.is_some() || !thread.run.is_empty();
            busy.then(|| (self.begin_nobodys(thread, at), false))
        })
    }
}
