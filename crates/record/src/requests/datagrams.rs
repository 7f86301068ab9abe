//! Requests on sockets of UDP: one socket has all clients, each datagram is a request, and the first send
//! for it is its answer.

use tailscope_signals::slice::Slice;

use super::Requests;
use super::thread::Thread;
use super::work::WorkId;

/// The most requests that are open on such a socket. Many protocols have messages without an answer.
const MOST_OPEN: usize = 1024;

impl Requests {
    /// What comes in on a socket of QUIC is encrypted and says nothing of requests.
    pub(super) fn pass_quic(&mut self, thread: &mut Thread, slice: &Slice) {
        let socket = self.sockets.entry(slice.socket).or_default();
        socket.touched = slice.at;
        socket.asked = false;
        self.missed.multiplexed += 1;
        for work in socket.take_open() {
            self.missed.multiplexed += u64::from(self.works.end(work).is_some());
        }
        self.pass_over(thread, slice.at);
    }

    /// A datagram has come in.
    pub(super) fn open_datagram(&mut self, socket: u64, work: WorkId) {
        let datagrams = &mut self.sockets.entry(socket).or_default().datagrams;
        datagrams.push_back(work);
        let surplus = datagrams.len().saturating_sub(MOST_OPEN);
        let oldest: Vec<_> = datagrams.drain(..surplus).collect();
        for work in oldest {
            self.complete(work, false);
        }
    }

    /// Which of those that are open the thread answers with a send there: the one of which a result came in
    /// last, one that it has in hand, or else the oldest that may have its answer. `None`: none of them.
    pub(super) fn answered_datagram(&mut self, thread: &Thread, socket: u64) -> Option<WorkId> {
        let works = &self.works;
        let is_open = |work: &WorkId| {
            let request = works.get(*work).and_then(|of| of.request.as_ref());
            request.is_some_and(|of| of.socket == socket && of.ended == 0)
        };
        let owner = thread.owner.and_then(|owner| works.woken_for(owner));
        let pending = thread.pending.iter().map(|(work, _)| *work);
        let in_hand = thread.result.into_iter().chain(pending);
        let in_hand = in_hand.chain(owner).chain(thread.held);
        let mut in_hand = in_hand.filter_map(|work| works.root(work));
        if let Some(work) = in_hand.find(is_open) {
            return Some(work);
        }
        if owner.is_some_and(|owner| !works.is_nobodys(owner)) {
            return None; // it is at work for somebody else
        }
        // It goes on with an answer, unless another thread leaves requests to whichever is free.
        let goes_on = thread.owner.is_none() && thread.after.is_some();
        let is_left = |work: &WorkId| {
            let request = works.get(*work).and_then(|of| of.request.as_ref());
            let by = request.and_then(|of| self.threads.get(&of.received_by));
            by.is_some_and(|by| by.only_receives())
        };
        let waits = |work: &WorkId| {
            let of = works.get(*work);
            of.is_some_and(|of| of.proven && !of.asks.is_empty())
        };
        let of = self.sockets.get(&socket)?;
        if goes_on && of.in_parts {
            return None;
        }
        let may_be = |work: &WorkId| !waits(work) && (!goes_on || is_left(work));
        let oldest = of.datagrams.iter().copied().find(may_be)?;
        if let Some(of) = self.works.get_mut(oldest) {
            of.ambiguous = true;
        }
        Some(oldest)
    }

    /// The request has its answer. `tid`: the thread that sent it.
    pub(super) fn close_datagram(&mut self, thread: &mut Thread, work: WorkId, tid: u32) {
        let Some(request) = self.works.get(work).and_then(|of| of.request.as_ref()) else {
            return;
        };
        let (socket, by) = (request.socket, request.received_by);
        if by == tid {
            thread.count_received();
        } else if let Some(by) = self.threads.get_mut(&by) {
            by.count_received();
        }
        if let Some(socket) = self.sockets.get_mut(&socket) {
            socket.datagrams.retain(|open| *open != work);
        }
        self.complete(work, false);
    }
}
