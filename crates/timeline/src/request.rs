//! Requests, followed from packet to packet through the events.
//!
//! A request begins with the first packet whose bytes a watched thread then receives, and ends when
//! the last byte that was sent on that socket before the next receive has left: taken by a device,
//! not merely given to TCP. TCP's own sequence numbers say which packet carried which bytes, so
//! nothing is guessed. Sockets that are not TCP have no packets: from when the data was ready to the
//! end of the send.

use std::collections::{HashMap, VecDeque};

use tailscope_signals::event::{Event, Held, OnTop, Sequence, Socket, What};

/// After so long without a further send or receive an answer counts as whole, in ns.
const SETTLED_NS: u64 = 200_000_000;
/// Sockets whose packets are remembered; beyond it those longest silent are forgotten.
const MOST_SOCKETS: usize = 65_536;
/// Packets of one socket that nobody has received yet.
const MOST_ARRIVALS: usize = 64;
/// Sends of one request, of which the last count.
const MOST_SENDS: usize = 64;

/// A packet with data on its way in, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// The client's device took it; `None`: it came from another machine.
    pub left: Option<u64>,
    /// The stack took it from the device.
    pub packet: u64,
    /// TCP looked at it.
    pub tcp: u64,
    /// The socket's reader was told; `None`: not seen.
    pub ready: Option<u64>,
    end: Sequence,
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
    end: Option<Sequence>,
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
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
}

impl Request {
    /// When it began, as early as this machine could see it: when the client's device took it, else
    /// when the stack did, else when its data was ready, else at the receive.
    #[must_use]
    pub fn begin(&self) -> u64 {
        let packet = self
            .arrival
            .map(|arrival| arrival.left.unwrap_or(arrival.packet));
        packet
            .or(self.ready)
            .unwrap_or(self.received)
            .min(self.received)
    }

    /// When it ended.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.transmitted
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

/// A request that has not ended.
#[derive(Debug)]
struct Open {
    tid: u32,
    arrival: Option<Arrival>,
    ready: Option<u64>,
    received: u64,
    bytes: u64,
    sends: VecDeque<Sent>,
    acknowledged: Option<u64>,
    /// When the last byte of the last send left, once it has.
    left: Option<u64>,
}

#[derive(Debug, Default)]
struct Flow {
    arrivals: VecDeque<Arrival>,
    ready: Option<u64>,
    open: Option<Open>,
    /// Answered, and a next request has come before TCP let the last byte go.
    leaving: VecDeque<Open>,
    /// The latest byte that left, and when.
    transmitted: Option<(Sequence, u64)>,
    touched: u64,
}

/// Makes requests of events, which have to come in the order of their time.
#[derive(Debug, Default)]
pub struct Requests {
    flows: HashMap<Socket, Flow>,
    /// By CPU: when the latest packet was taken from a device, in the softirq that runs.
    packets: HashMap<u32, u64>,
    /// The latest data that each local socket sent, by where it ends: it may come in here.
    leaving: HashMap<Sequence, (Socket, u64)>,
    swept: u64,
}

impl Flow {
    /// Whether a send's last byte has left, and when.
    fn left(&self, sent: &Sent) -> Option<u64> {
        match sent.end {
            None => Some(sent.at),
            Some(end) => self
                .transmitted
                .filter(|(up_to, _)| up_to.reaches(end))
                .map(|(_, at)| at),
        }
    }
}

impl Open {
    fn done(self, socket: Socket) -> Option<Request> {
        let transmitted = self.left?;
        Some(Request {
            socket,
            tid: self.tid,
            arrival: self.arrival,
            ready: self.ready,
            received: self.received,
            bytes: self.bytes,
            acknowledged: self.acknowledged,
            transmitted: transmitted.max(self.received),
            sends: self.sends.into(),
        })
    }
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
            } => self.comes_in(cpu, now, socket, end, bytes),
            What::Ready { socket } => {
                let flow = self.flow(socket, now);
                flow.ready.get_or_insert(now);
                for arrival in &mut flow.arrivals {
                    arrival.ready.get_or_insert(now);
                }
            }
            What::Receive { socket, end, bytes } => {
                let flow = self.flow(socket, now);
                flow.receive(event, end, bytes)
                    .into_iter()
                    .for_each(|open| {
                        if let Some(request) = open.done(socket) {
                            each(request);
                        }
                    });
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
                let left = flow.left(&sent);
                if let Some(open) = &mut flow.open {
                    if open.sends.len() == MOST_SENDS {
                        open.sends.pop_front();
                    }
                    open.sends.push_back(sent);
                    open.left = left;
                }
            }
            What::Transmit { socket, end, .. } => {
                self.leaving.insert(end, (socket, now));
                let flow = self.flow(socket, now);
                if flow
                    .transmitted
                    .is_none_or(|(before, _)| end.reaches(before))
                {
                    flow.transmitted = Some((end, now));
                }
                flow.leave(now, socket).into_iter().for_each(&mut each);
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

    fn comes_in(&mut self, cpu: u32, now: u64, socket: Socket, end: Sequence, bytes: u16) {
        // In a softirq its packet has just been told; from a socket's backlog it has not.
        let packet = self.packets.get(&cpu).copied().unwrap_or(now);
        let left = (bytes > 0).then(|| self.leaving.remove(&end)).flatten();
        let flow = self.flow(socket, now);
        for open in flow.open.iter_mut().chain(&mut flow.leaving) {
            if open.left.is_none() && !open.sends.is_empty() {
                open.acknowledged = Some(now);
            }
        }
        if bytes == 0 {
            return;
        }
        if flow.arrivals.len() == MOST_ARRIVALS {
            flow.arrivals.pop_front();
        }
        flow.arrivals.push_back(Arrival {
            left: left.filter(|(from, _)| *from != socket).map(|(_, at)| at),
            packet,
            tcp: now,
            ready: None,
            end,
        });
    }

    /// Hands on what is whole, and forgets what nobody asks for any more.
    fn sweep(&mut self, now: u64, each: &mut impl FnMut(Request)) {
        self.swept = now;
        let settled = now.saturating_sub(SETTLED_NS);
        for (socket, flow) in &mut self.flows {
            let whole = flow.open.as_ref().is_some_and(|open| {
                open.left.is_some() && open.sends.back().is_some_and(|sent| sent.at < settled)
            });
            if whole {
                flow.open
                    .take()
                    .and_then(|open| open.done(*socket))
                    .into_iter()
                    .for_each(&mut *each);
            }
        }
        self.leaving.retain(|_, (_, at)| *at >= settled);
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
            for open in flow.leaving.into_iter().chain(flow.open) {
                open.done(socket).into_iter().for_each(&mut each);
            }
        }
    }
}

impl Flow {
    /// Bytes were received. Gives back the request that ends thereby, if its last byte has left.
    fn receive(&mut self, event: &Event, end: Option<Sequence>, bytes: u32) -> Option<Open> {
        let mut first = None;
        while let Some(arrival) = self.arrivals.front() {
            if !end.is_some_and(|end| end.reaches(arrival.end)) {
                // The rest of this packet is still to be received.
                first = first.or(end.map(|_| *arrival));
                break;
            }
            first = first.or(Some(*arrival));
            self.arrivals.pop_front();
        }
        let ready = first
            .and_then(|arrival| arrival.ready)
            .or(self.ready.take().filter(|_| end.is_none()));
        self.ready = None;
        let mut ended = None;
        if let Some(open) = self.open.take() {
            if open.sends.is_empty() {
                // The rest of a request that came in pieces.
                self.open = Some(Open {
                    bytes: open.bytes + u64::from(bytes),
                    ..open
                });
                return None;
            }
            if open.left.is_some() {
                ended = Some(open);
            } else if self.leaving.len() < MOST_SENDS {
                self.leaving.push_back(open);
            }
        }
        self.open = Some(Open {
            tid: event.tid,
            arrival: first,
            ready,
            received: event.at,
            bytes: bytes.into(),
            sends: VecDeque::new(),
            acknowledged: None,
            left: None,
        });
        ended
    }

    /// Bytes left. Gives back the requests that end thereby and have been followed by another.
    fn leave(&mut self, now: u64, socket: Socket) -> Vec<Request> {
        let Some((up_to, _)) = self.transmitted else {
            return Vec::new();
        };
        let covered = |open: &Open| {
            let last = open.sends.back().and_then(|sent| sent.end);
            open.left.is_none() && last.is_some_and(|end| up_to.reaches(end))
        };
        if let Some(open) = &mut self.open
            && covered(open)
        {
            open.left = Some(now);
        }
        let mut ended = Vec::new();
        while let Some(mut open) = self.leaving.pop_front() {
            if !covered(&open) {
                self.leaving.push_front(open);
                break;
            }
            open.left = Some(now);
            ended.extend(open.done(socket));
        }
        ended
    }
}

#[cfg(test)]
mod tests;
