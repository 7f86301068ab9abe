//! Requests on sockets of UDP: one socket has all clients, each datagram is a request, and the first send
//! for it is its answer.

use tailscope_signals::slice::Slice;

use super::Requests;
use super::thread::Thread;
use super::work::WorkId;

/// The most requests that are open on such a socket. Many protocols have messages without an answer.
const MOST_OPEN: usize = 1024;

/// The first datagram of a connection of QUIC has at least so many bytes (RFC 9000, section 14.1),
const LEAST_FIRST: u32 = 1200;
/// and begins with a long header (section 17.2) and the first bytes of a version: 1, or 2 (RFC 9369).
const LONG_HEADER: u8 = 0xc0;
const VERSIONS: [[u8; 3]; 2] = [[0, 0, 0], [0x6b, 0x33, 0x43]];

fn begins_quic(slice: &Slice) -> bool {
    let [first, a, b, c, ..] = slice.text[..] else {
        return false;
    };
    let is_long = first & LONG_HEADER == LONG_HEADER && VERSIONS.contains(&[a, b, c]);
    is_long && slice.length >= LEAST_FIRST
}

impl Requests {
    /// What comes in on a socket of QUIC is encrypted and says nothing of requests. Returns whether this is
    /// such a socket.
    pub(super) fn is_over_quic(&mut self, slice: &Slice) -> bool {
        let Some(socket) = self.sockets.get_mut(&slice.socket).filter(|of| of.peer.udp) else {
            return false;
        };
        socket.touched = slice.at;
        socket.quic |= begins_quic(slice);
        if !socket.quic {
            return false;
        }
        self.missed.multiplexed += 1;
        for work in socket.take_open() {
            self.missed.multiplexed += u64::from(self.works.end(work).is_some());
        }
        true
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
