//! The moments of a request: packets that come in, sends, and how an answer reached its client.

use serde::{Deserialize, Serialize};
use tailscope_signals::event::{Held, Sequence, Socket};

use super::persist;

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
