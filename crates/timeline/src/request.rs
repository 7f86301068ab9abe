//! Requests, followed from packet to packet through the events.
//!
//! A request begins with the first packet whose bytes a watched thread then receives, and ends when
//! the last byte that was sent on that socket before the next receive has left: taken by a device,
//! not merely given to TCP. Where the client is on this machine, it ends when the client received
//! that byte. TCP's own sequence numbers say which packet carried which bytes, so nothing is guessed.
//! Sockets that are not TCP have no packets: from when the data was ready to the end of the send.

mod flow;

use flow::Flow;
use tailscope_signals::event::{Event, Held, OnTop, Sequence, Socket, What};

use crate::keyed::ByNumber;

/// After so long without a further send or receive an answer counts as whole, in ns.
const SETTLED_NS: u64 = 200_000_000;
/// So long a client on this machine may take to receive its answer, in ns. Then the request ends
/// where the answer left.
const UNTAKEN_NS: u64 = 1_000_000_000;
/// Sockets whose packets are remembered; beyond it those longest silent are forgotten.
const MOST_SOCKETS: usize = 65_536;
/// Packets of one socket that nobody has received yet.
const MOST_ARRIVALS: usize = 64;
/// Sends of one request, of which the last count.
const MOST_SENDS: usize = 64;

/// A packet with data on its way in, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The client's thread called for it to be sent, and which that is; `None`: another machine's, or it
    /// did not leave in that call.
    pub asked: Option<(u64, u32)>,
    /// The client's device took it; `None`: it came from another machine.
    pub left: Option<u64>,
    /// The stack took it from the device.
    pub packet: u64,
    /// TCP looked at it.
    pub tcp: u64,
    /// The socket's reader was told; `None`: not seen.
    pub ready: Option<u64>,
    /// The socket on this machine that sent it.
    from: Option<Socket>,
    end: Sequence,
}

/// How the last of an answer reached a client on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// Its packet on the way in to the client.
    pub arrival: Arrival,
    /// The client's receive returned, in ns.
    pub taken: u64,
    /// The client's thread.
    pub tid: u32,
}

/// A send, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// When it returned.
    pub at: u64,
    /// The thread.
    pub tid: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Why TCP kept some of them back.
    pub held: Held,
    /// The place in the stream after them; `None`: it is not TCP.
    pub end: Option<Sequence>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// It is a span of this source of probes, or of this name of the SDK, and has no socket, and one send: its end.
    pub span: Option<u16>,
    /// Its socket.
    pub socket: Socket,
    /// The thread that received it.
    pub tid: u32,
    /// Its first packet; `None`: it was not seen, or the socket is not TCP.
    pub arrival: Option<Arrival>,
    /// The socket's reader was told, in ns; `None`: not seen.
    pub ready: Option<u64>,
    /// The first receive's return, in ns.
    pub received: u64,
    /// Bytes that were received.
    pub bytes: u64,
    /// The sends of the answer, oldest first.
    pub sends: Vec<Sent>,
    /// An acknowledgement came in while TCP kept bytes back, the latest before they left, in ns.
    pub acknowledged: Option<u64>,
    /// When the last byte left, in ns.
    pub transmitted: u64,
    /// How a client on this machine got it.
    pub delivery: Option<Delivery>,
}

impl Request {
    /// When it began, as early as this machine could see it: when the client called for it to be sent,
    /// else when its device took it, else when the stack did, else when its data was ready, else at
    /// the receive.
    #[must_use]
    pub fn begin(&self) -> u64 {
        let packet = self.arrival.map(|arrival| {
            let asked = arrival.asked.map(|(at, _)| at);
            asked.or(arrival.left).unwrap_or(arrival.packet)
        });
        packet
            .or(self.ready)
            .unwrap_or(self.received)
            .min(self.received)
    }

    /// When it ended, as late as this machine could see it.
    #[must_use]
    pub fn end(&self) -> u64 {
        let taken = self.delivery.map_or(0, |delivery| delivery.taken);
        taken.max(self.transmitted)
    }

    /// How long it took, in ns.
    #[must_use]
    pub fn latency(&self) -> u64 {
        self.end().saturating_sub(self.begin())
    }

    /// The last send.
    #[must_use]
    pub fn last_send(&self) -> Sent {
        *self.sends.last().expect("only an answered request is made")
    }
}

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
}

impl Requests {
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
            What::Ready { socket } => {
                let flow = self.flow(socket, now);
                flow.ready.get_or_insert(now);
                for arrival in &mut flow.arrivals {
                    arrival.ready.get_or_insert(now);
                }
            }
            What::Receive {
                socket,
                end,
                bytes,
                connects,
            } => {
                let first = self.takes(event, socket, end, &mut each);
                let tcp = end.is_some();
                // To a client an answer comes in, and no request.
                let ended = if connects {
                    None
                } else {
                    self.flow(socket, now).receive(event, first, tcp, bytes)
                };
                ended
                    .and_then(|open| open.done(socket))
                    .into_iter()
                    .for_each(&mut each);
            }
            What::Taken { socket, end, .. } => {
                self.takes(event, socket, Some(end), &mut each);
            }
            What::Send {
                socket,
                end,
                bytes,
                held,
            } => {
                let flow = self.flow(socket, now);
                let sent = Sent {
                    at: now,
                    tid: event.tid,
                    bytes,
                    held,
                    end,
                };
                flow.send(sent);
            }
            What::Transmit {
                socket, end, since, ..
            } => {
                let asked = (since > 0).then(|| (now.saturating_sub(since.into()), event.tid));
                let leaves = Leaves {
                    from: socket,
                    at: now,
                    asked,
                };
                self.leaving.insert(end, leaves);
                self.renew(socket, now, None, Some(end), &mut each);
                let flow = self.flow(socket, now);
                if flow
                    .transmitted
                    .is_none_or(|(before, _)| end.reaches(before))
                {
                    flow.transmitted = Some((end, now));
                }
                flow.settle(socket).into_iter().for_each(&mut each);
            }
            _ => {}
        }
        if now.saturating_sub(self.swept) > SETTLED_NS / 4 {
            self.sweep(now, &mut each);
        }
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
            let old = std::mem::take(flow);
            flow.is_anew(comes, leaves);
            for open in old.into_open() {
                open.done(socket).into_iter().for_each(&mut *each);
            }
        }
    }

    fn comes_in(&mut self, cpu: u32, now: u64, socket: Socket, end: Sequence, bytes: u16) {
        // In a softirq its packet has just been told; from a socket's backlog it has not.
        let packet = self.packets.get(&cpu).copied().unwrap_or(now);
        let left = (bytes > 0).then(|| self.leaving.remove(&end)).flatten();
        let flow = self.flow(socket, now);
        for open in flow.unsent() {
            open.acknowledged = Some(now);
        }
        if bytes == 0 {
            return;
        }
        if flow.arrivals.len() == MOST_ARRIVALS {
            flow.arrivals.pop_front();
        }
        let left = left.filter(|left| left.from != socket);
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

    /// The reader of a socket took everything up to `end`. Gives back the first packet of it, and
    /// hands on the requests that end thereby, where these are answers of others' sockets.
    fn takes(
        &mut self,
        by: &Event,
        socket: Socket,
        end: Option<Sequence>,
        each: &mut impl FnMut(Request),
    ) -> Option<Arrival> {
        let end = end?;
        let mut first = None;
        while let Some(arrival) = self.flow(socket, by.at).next_up_to(end, &mut first) {
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
        first
    }

    /// Hands on what is whole, and forgets what nobody asks for any more.
    fn sweep(&mut self, now: u64, each: &mut impl FnMut(Request)) {
        self.swept = now;
        let settled = now.saturating_sub(SETTLED_NS);
        for (socket, flow) in &mut self.flows {
            flow.sweep(now, *socket).into_iter().for_each(&mut *each);
        }
        self.leaving.retain(|_, left| left.at >= settled);
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
