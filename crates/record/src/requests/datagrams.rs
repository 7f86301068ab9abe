//! Requests on sockets of UDP: one socket has all clients, each datagram is a request, and the first send
//! for it is its answer.

use super::Requests;
use super::thread::Thread;
use super::work::WorkId;

/// The most requests that are open on such a socket. Many protocols have messages without an answer.
const MOST_OPEN: usize = 1024;

impl Requests {
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

    /// Which of those that are open the thread answers with a send there: the one of which a result has just
    /// come in, one that it has in hand, or else the oldest. `None`: none, as it has just answered one, or none
    /// is open.
    pub(super) fn answered_datagram(&mut self, thread: &Thread, socket: u64) -> Option<WorkId> {
        let works = &self.works;
        let open = &self.sockets.get(&socket)?.datagrams;
        let owner = thread.owner.and_then(|owner| works.root(owner));
        let has_result = |of: &WorkId| {
            let of = works.get(*of);
            of.is_some_and(|of| of.proven && of.asks.is_empty())
        };
        let pending = thread.pending.iter().map(|(work, _)| *work);
        let pending = pending.filter_map(|work| works.root(work));
        let woken_for = owner.and_then(|owner| works.woken_for(owner));
        let held = thread.held.and_then(|held| works.root(held));
        let result = owner.filter(has_result).into_iter();
        let mut of = result.chain(pending).chain(woken_for).chain(held);
        if let Some(work) = of.find(|work| open.contains(work)) {
            return Some(work);
        }
        if thread.owner.is_none() && thread.after.is_some() {
            return None;
        }
        let is_guess = open.len() > 1;
        let oldest = *open.front()?;
        if let Some(of) = self.works.get_mut(oldest) {
            of.ambiguous |= is_guess;
        }
        Some(oldest)
    }

    /// The request has its answer.
    pub(super) fn close_datagram(&mut self, socket: u64, work: WorkId) {
        if let Some(socket) = self.sockets.get_mut(&socket) {
            socket.datagrams.retain(|open| *open != work);
        }
        self.complete(work, false);
    }
}
