//! Requests, followed from packet to packet through the events.
//!
//! A request begins with the first packet whose bytes a watched thread then receives, and ends when
//! the last byte that was sent on that socket before the next receive has left: taken by a device,
//! not merely given to TCP. Where the client is on this machine, it ends when the client received
//! that byte. TCP's own sequence numbers say which packet carried which bytes, so nothing is guessed.
//! Sockets that are not TCP have no packets: from when the data was ready to the end of the send.

mod flow;
mod moments;
mod persist;

use flow::{Flow, Taken};
pub use moments::{Arrival, Delivery, Request, Sent};
use tailscope_signals::event::{Event, OnTop, Sequence, Socket, What};

use crate::keyed::ByNumber;

/// After so long without a further send or receive an answer is handed on as whole, in ns.
const SETTLED_NS: u64 = 200_000_000;
/// What is sent after a longer silence, in ns, is no part of the answer: the server sends by itself, as
/// to a subscriber. The request says so ([`Request::sent_again`]).
const CONTINUED_NS: u64 = 1_000_000_000;
/// So long it is known when a packet left a client on this machine, in ns: a packet that is lost comes
/// again after a fifth of that.
const LEFT_NS: u64 = 1_000_000_000;
/// So long a client on this machine may take to receive its answer, in ns. Then the request ends
/// where the answer left.
const UNTAKEN_NS: u64 = 1_000_000_000;
/// Sockets whose packets are remembered; beyond it those longest silent are forgotten.
const MOST_SOCKETS: usize = 65_536;
/// What comes in so little before the place up to which its reader has everything was sent again. A
/// connection whose numbers are further back is another one in the place of the socket.
const AGAIN_BYTES: u32 = 1 << 16;
/// Packets of one socket that nobody has received yet.
const MOST_ARRIVALS: usize = 64;
/// Sends of one request, of which the last count.
const MOST_SENDS: usize = 64;

/// A packet with data that a device took.
#[derive(Debug, Clone, Copy)]
struct Leaves {
    from: Socket,
    at: u64,
    asked: Option<(u64, u32)>,
}

/// Makes requests of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Requests {
    flows: ByNumber<Socket, Flow>,
    /// By CPU: when the latest packet was taken from a device, in the softirq that runs.
    packets: ByNumber<u32, u64>,
    /// The latest data that each local socket sent, by where it ends: it may come in here.
    leaving: ByNumber<Sequence, Leaves>,
    swept: u64,
    /// When what left long ago was last forgotten.
    forgot: u64,
    /// Packets are not in the events: a request is from when its data was ready to the end of its send.
    blind: bool,
}

impl Requests {
    /// `packets`: whether the events have what comes in and leaves.
    #[must_use]
    pub fn with(packets: bool) -> Self {
        Self {
            blind: !packets,
            ..Self::default()
        }
    }

    /// A place in the bytes of a connection, where packets say when what was there.
    fn seen(&self, end: Option<Sequence>) -> Option<Sequence> {
        end.filter(|_| !self.blind)
    }

    /// Takes the next event, of a CPU, and hands on the requests whose end is known by now.
    pub fn take(&mut self, cpu: u32, event: &Event, mut each: impl FnMut(Request)) {
        let now = event.at;
        match event.what {
            What::PacketIn { .. } => {
                self.packets.insert(cpu, now);
            }
            What::Leave(OnTop::Softirq(_)) => {
                self.packets.remove(&cpu);
            }
            What::TcpIn {
                socket, end, bytes, ..
            } => {
                if bytes > 0 {
                    self.renew(socket, now, Some(end), None, &mut each);
                }
                self.comes_in(cpu, now, socket, end, bytes);
            }
            What::Ready { socket } => self.becomes_ready(socket, now),
            What::Receive {
                socket,
                end,
                bytes,
                connects,
            } => {
                let end = self.seen(end);
                let first = self.takes(event, socket, end, bytes, &mut each);
                // To a client an answer comes in, and no request.
                if !connects {
                    let first = first.or_else(|| self.left_for(socket, end?, now));
                    self.receives(event, (socket, end), first, bytes, &mut each);
                }
            }
            What::Taken { socket, end, bytes } => {
                let end = self.seen(Some(end));
                self.takes(event, socket, end, bytes, &mut each);
            }
            What::Send {
                socket,
                end,
                bytes,
                held,
            } => {
                let sent = Sent {
                    at: now,
                    tid: event.tid,
                    bytes,
                    held,
                    end: self.seen(end),
                };
                let flow = self.flow(socket, now);
                flow.send(sent, socket).into_iter().for_each(&mut each);
            }
            What::Transmit {
                socket, end, since, ..
            } => self.leaves(event, socket, end, since, &mut each),
            _ => {}
        }
        if now.saturating_sub(self.swept) > SETTLED_NS / 4 {
            self.sweep(now, &mut each);
        }
    }

    /// The reader of a socket was told that there is something.
    fn becomes_ready(&mut self, socket: Socket, now: u64) {
        let flow = self.flow(socket, now);
        flow.ready.get_or_insert(now);
        for arrival in &mut flow.arrivals {
            arrival.ready.get_or_insert(now);
        }
    }

    /// A server received bytes, of TCP up to `end`, and `first` is their first packet. Hands on the
    /// request that ends thereby, if its end is known.
    fn receives(
        &mut self,
        by: &Event,
        (socket, end): (Socket, Option<Sequence>),
        first: Option<Arrival>,
        bytes: u32,
        each: &mut impl FnMut(Request),
    ) {
        let flow = self.flow(socket, by.at);
        flow.receive(by, first, end.is_some(), bytes)
            .and_then(|open| open.done(socket))
            .into_iter()
            .for_each(&mut *each);
    }

    /// A device took a packet up to `end`. Hands on the requests that end thereby.
    fn leaves(
        &mut self,
        event: &Event,
        socket: Socket,
        end: Sequence,
        since: u32,
        each: &mut impl FnMut(Request),
    ) {
        let now = event.at;
        let asked = (since > 0).then(|| (now.saturating_sub(since.into()), event.tid));
        let leaves = Leaves {
            from: socket,
            at: now,
            asked,
        };
        // The same bytes again: the first time is when they left.
        let left = self.leaving.entry(end).or_insert(leaves);
        if left.from != socket {
            *left = leaves;
        }
        self.renew(socket, now, None, Some(end), each);
        let flow = self.flow(socket, now);
        if flow
            .transmitted
            .is_none_or(|(before, _)| end != before && end.reaches(before))
        {
            flow.transmitted = Some((end, now));
        }
        flow.settle(socket).into_iter().for_each(&mut *each);
    }

    fn flow(&mut self, socket: Socket, now: u64) -> &mut Flow {
        let flow = self.flows.entry(socket).or_default();
        flow.touched = now;
        flow
    }

    /// Forgets a socket's connection where another one has come in its place.
    fn renew(
        &mut self,
        socket: Socket,
        now: u64,
        comes: Option<Sequence>,
        leaves: Option<Sequence>,
        each: &mut impl FnMut(Request),
    ) {
        let flow = self.flow(socket, now);
        if flow.is_anew(comes, leaves) {
            let mut old = std::mem::take(flow);
            if leaves.is_some() {
                flow.take_over(&mut old);
            }
            flow.is_anew(comes, leaves);
            for open in old.into_open() {
                open.done(socket).into_iter().for_each(&mut *each);
            }
        }
    }

    fn comes_in(&mut self, cpu: u32, now: u64, socket: Socket, end: Sequence, bytes: u16) {
        // In a softirq its packet has just been told; from a socket's backlog it has not.
        let packet = self.packets.get(&cpu).copied().unwrap_or(now);
        let left = (bytes > 0).then(|| self.left(socket, end)).flatten();
        if let Some(left) = left {
            self.join(socket, left.from, now);
        }
        let flow = self.flow(socket, now);
        for open in flow.unsent() {
            open.acknowledged = Some(now);
        }
        // TCP sends again what was acknowledged late: that is no part of the next request.
        let again = flow
            .taken
            .is_some_and(|taken| taken.0.wrapping_sub(end.0) < AGAIN_BYTES);
        if bytes == 0 || again {
            return;
        }
        if flow.arrivals.len() == MOST_ARRIVALS {
            flow.arrivals.pop_front();
        }
        flow.arrivals.push_back(Arrival {
            asked: left.and_then(|left| left.asked),
            left: left.map(|left| left.at),
            packet,
            tcp: now,
            ready: None,
            from: left.map(|left| left.from),
            end,
        });
    }

    /// These are the two ends of a connection.
    fn join(&mut self, one: Socket, other: Socket, now: u64) {
        self.flow(one, now).peer = Some(other);
        self.flow(other, now).peer = Some(one);
    }

    /// The packet up to here that left a socket on this machine for this one. Sequence numbers of
    /// different connections may be the same: one server's socket is no client of another's.
    fn left(&mut self, socket: Socket, end: Sequence) -> Option<Leaves> {
        let left = self.leaving.remove(&end)?;
        let serves = |of: Socket| self.flows.get(&of).is_some_and(|flow| flow.serves);
        let possible = left.from != socket && !(serves(socket) && serves(left.from));
        possible.then_some(left)
    }

    /// The packet of a request whose arrival TCP did not tell of, as where it made the connection
    /// (TCP_DEFER_ACCEPT, a full accept queue), and whose client is on this machine.
    fn left_for(&mut self, socket: Socket, end: Sequence, now: u64) -> Option<Arrival> {
        let left = self.left(socket, end)?;
        self.join(socket, left.from, now);
        let ready = self.flow(socket, now).ready;
        let came = ready.unwrap_or(now).max(left.at);
        Some(Arrival {
            asked: left.asked,
            left: Some(left.at),
            packet: came,
            tcp: came,
            ready,
            from: Some(left.from),
            end,
        })
    }

    /// The reader of a socket took the last `bytes` up to `end`. Gives back their first packet, and
    /// hands on the requests that end thereby, where these are answers of others' sockets.
    fn takes(
        &mut self,
        by: &Event,
        socket: Socket,
        end: Option<Sequence>,
        bytes: u32,
        each: &mut impl FnMut(Request),
    ) -> Option<Arrival> {
        let end = end?;
        let mut taken = Taken::of(bytes, end);
        while let Some(arrival) = self.flow(socket, by.at).next_of(&mut taken) {
            let Some(from) = arrival.from else { continue };
            if let Some(other) = self.flows.get_mut(&from) {
                other.deliver(Delivery {
                    arrival,
                    taken: by.at,
                    tid: by.tid,
                });
                other.settle(from).into_iter().for_each(&mut *each);
            }
        }
        let flow = self.flow(socket, by.at);
        flow.taken = Some(end);
        if let Some(peer) = flow.peer
            && let Some(other) = self.flows.get_mut(&peer)
            && other.peer == Some(socket)
        {
            other.deliver_unseen(by, end, peer);
            other.settle(peer).into_iter().for_each(&mut *each);
        }
        taken.first()
    }

    /// Hands on what is whole, and forgets what nobody asks for any more.
    fn sweep(&mut self, now: u64, each: &mut impl FnMut(Request)) {
        self.swept = now;
        for (socket, flow) in &mut self.flows {
            flow.sweep(now, *socket).into_iter().for_each(&mut *each);
        }
        // There is one for each answer of a second: to look at all of them takes long.
        if now.saturating_sub(self.forgot) > LEFT_NS / 4 {
            self.forgot = now;
            let known = now.saturating_sub(LEFT_NS);
            self.leaving.retain(|_, left| left.at >= known);
        }
        if self.flows.len() > MOST_SOCKETS {
            let mut touched: Vec<u64> = self.flows.values().map(|flow| flow.touched).collect();
            let (_, middle, _) = touched.select_nth_unstable(MOST_SOCKETS / 2);
            let middle = *middle;
            self.flows.retain(|_, flow| flow.touched > middle);
        }
    }

    /// Hands on all that were answered: nothing further will come.
    pub fn finish(mut self, mut each: impl FnMut(Request)) {
        for (socket, flow) in self.flows.drain() {
            for open in flow.into_open() {
                open.done(socket).into_iter().for_each(&mut each);
            }
        }
    }
}

#[cfg(test)]
mod tests;
