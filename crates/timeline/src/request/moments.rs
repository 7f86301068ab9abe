//! A request and its moments: packets that come in, sends, and how an answer reached its client.

use serde::{Deserialize, Serialize};
use tailscope_signals::event::{Held, Sequence, Socket};

use super::persist;

/// One request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// It is a span of this source of probes, or of this name of the SDK, and has no socket, and one send: its end.
    pub span: Option<u16>,
    /// Its socket.
    #[serde(with = "persist::socket")]
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
    /// It was handed on before as whole, and so long, in ns; then more came of it.
    #[serde(default)]
    pub amends: Option<u64>,
    /// So long after its last send the server sent again, in ns, and nothing had been received between.
    #[serde(default)]
    pub sent_again: Option<u64>,
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

    /// Whether both are the same request, of which one may know more.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let identity = |r: &Self| (r.span, r.socket, r.tid, r.received);
        identity(self) == identity(other)
    }

    /// Whether its moments are in an order that a request can have: a file may say anything.
    pub(crate) fn is_sound(&self, latest: u64) -> bool {
        let taken = self.delivery.map_or(0, |delivery| delivery.taken);
        !self.sends.is_empty()
            && self.received <= self.transmitted
            && self.transmitted.max(taken) <= latest
    }

    /// The last send.
    #[must_use]
    pub fn last_send(&self) -> Sent {
        *self.sends.last().expect("only an answered request is made")
    }
}

/// A packet with data on its way in, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    #[serde(with = "persist::socket_or_none")]
    pub(super) from: Option<Socket>,
    #[serde(with = "persist::sequence")]
    pub(super) end: Sequence,
}

/// How the last of an answer reached a client on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its packet on the way in to the client.
    pub arrival: Arrival,
    /// The client's receive returned, in ns.
    pub taken: u64,
    /// The client's thread.
    pub tid: u32,
}

/// A send, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// When it returned.
    pub at: u64,
    /// The thread.
    pub tid: u32,
    /// How many bytes.
    pub bytes: u32,
    /// Why TCP kept some of them back.
    #[serde(with = "persist::held")]
    pub held: Held,
    /// The place in the stream after them; `None`: it is not TCP.
    #[serde(with = "persist::sequence_or_none")]
    pub end: Option<Sequence>,
}
