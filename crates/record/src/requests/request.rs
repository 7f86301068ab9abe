//! What is known of a request beside the work that was done for it.

use std::net::SocketAddr;

use tailscope_signals::abi;

use super::link::Trace;

/// What is known of a request beside its items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) socket: u64,
    pub(super) peer: Option<SocketAddr>,
    /// The number of its connection.
    pub(super) connection: Option<i64>,
    pub(super) trace: Option<Trace>,
    pub(super) pid: u32,
    /// The thread that received it.
    pub(super) received_by: u32,
    /// The thread and the CPU of its latest send.
    pub(super) tid: u32,
    pub(super) cpu: u16,
    pub(super) ready: u64,
    /// End of the latest send; 0: none yet.
    pub(super) ended: u64,
    pub(super) name: Option<String>,
    /// It came over TLS.
    pub(super) encrypted: bool,
    /// Its first bytes are a handshake's.
    pub(super) handshake: bool,
    /// Since when the latest of it was ready, where it began with a handshake.
    pub(super) latest: u64,
    /// What the program decrypted of it was seen.
    pub(super) decrypted: bool,
    /// Others may overlap with it, on its connection.
    pub(super) overlaps: bool,
    /// TCP keeps, or kept, its end back.
    pub(super) held: Option<Held>,
    /// Its thread received nothing else, and has sent on a socket of another.
    pub(super) pushed: bool,
    /// It confirms what was pushed to its client, and has no answer.
    pub(super) confirms: bool,
    /// Its answer's end, with its thread and CPU, if all that was sent since was pushed.
    pub(super) before_pushes: Option<Answered>,
}

impl Request {
    /// Whether it is none, where all that its program decrypts is seen: a handshake of TLS, or a
    /// message of TLS to which nobody answers.
    pub(super) fn has_no_data(&self) -> bool {
        self.encrypted && !self.decrypted && (self.handshake || self.ended == 0)
    }

    /// Whether its answer was kept back for want of room, so that its thread may send the rest later.
    pub(super) fn waits_for_room(&self) -> bool {
        match self.held {
            Some(Held::Still { why } | Held::Unseen { why } | Held::Until { why, .. }) => {
                u32::from(why) != abi::TS_HELD_NAGLE
            }
            None => false,
        }
    }

    /// Whether it may be a handshake, or several requests, and nothing tells.
    pub(super) fn is_doubtful(&self) -> bool {
        self.encrypted && (!self.decrypted || self.overlaps)
    }
}

/// The end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) at: u64,
    pub(super) tid: u32,
    pub(super) cpu: u16,
    pub(super) held: Option<Held>,
}

/// How long TCP kept back the end of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// Nothing has shown yet when it was passed on,
    Still { why: u16 },
    /// or will show it.
    Unseen { why: u16 },
    /// So long after the send.
    Until { ns: u64, why: u16 },
}

impl Held {
    /// What TCP does with an answer as it is sent; 0: it passes all on.
    pub(super) fn at_send(why: u64) -> Option<Self> {
        (why != 0).then_some(Self::Still { why: why as u16 })
    }
}
