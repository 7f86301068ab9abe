//! What a socket remembers: the request that is open on it, or what another server was asked.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailscope_signals::slice::Peer;

use super::http2::connection::Connection;
use super::statements::Statements;
use super::work::WorkId;
use super::works::Works;

/// A send to another server whose answer has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) work: WorkId,
    pub(super) sent: u64,
    /// Several requests could have sent it: the oldest was taken.
    pub(super) guess: bool,
    /// Then: one that had not asked anybody. It was that one's if the oldest ends before the answer.
    pub(super) other: Option<WorkId>,
}

impl Call {
    /// Whose it was, as its answer comes in.
    pub(super) fn after_all(self, works: &Works) -> Self {
        let work = match self.other {
            Some(other) if !works.is_live(self.work) => other,
            _ => self.work,
        };
        Self { work, ..self }
    }
}

/// A socket of a watched process.
#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) peer: Peer,
    pub(super) touched: u64,
    /// The request that is open here.
    pub(super) open: Option<WorkId>,
    /// Those that are open on a socket of UDP, oldest first: each datagram is one.
    pub(super) datagrams: VecDeque<WorkId>,
    /// Answers may have several datagrams: one was sent while none was open.
    pub(super) in_parts: bool,
    /// Nobody answers what comes in here: it is pushed to others.
    pub(super) says_only: bool,
    /// Its client has had a message for which it had not asked, or has confirmed one.
    pub(super) is_listener: bool,
    /// Its client confirms what it has.
    pub(super) confirms: bool,
    /// The thread that received here last.
    pub(super) received_by: u32,
    /// A request has come in here.
    pub(super) asked: bool,
    /// It is of HTTP/2, and its streams are sockets of their own.
    pub(super) frames: Option<Box<Connection>>,
    /// The stream of a connection of HTTP/2 that this is; 0: it is no stream.
    pub(super) stream: u32,
    /// What clients prepared here.
    pub(super) statements: Statements,
    /// Inside of TLS there is HTTP/2.
    pub(super) http2: bool,
    /// Since when what was received last could be, where it is encrypted.
    pub(super) ready: u64,
    /// What is received here may be the rest of a request whose begin was lost: until an answer.
    pub(super) lost: bool,
    /// That answer has begun.
    pub(super) answered: bool,
    /// This side sends no more.
    pub(super) closed: bool,
    /// What it carries is encrypted.
    pub(super) encrypted: bool,
    /// Calls without an answer, oldest first.
    pub(super) calls: VecDeque<Call>,
    /// Whose answer comes in at present, and when the latest part of it did.
    pub(super) answers: Option<Call>,
    pub(super) heard: u64,
}

impl Socket {
    /// Which server is at its other end; the inner `None`: one on a Unix socket. `None`: not known.
    pub(super) fn whom(&self) -> Option<Option<SocketAddr>> {
        let unix = self.peer.unix.map(|_| None);
        self.peer.address.map(Some).or(unix)
    }

    /// Whether something goes on here: a request, or a call of another server.
    pub(super) fn is_under_way(&self) -> bool {
        let follows = self.frames.as_ref().is_some_and(|f| f.is_under_way());
        let is_open = self.open.is_some() || !self.datagrams.is_empty();
        follows || is_open || !self.calls.is_empty()
    }

    /// Takes out every request that is open here.
    pub(super) fn take_open(&mut self) -> Vec<WorkId> {
        self.open
            .take()
            .into_iter()
            .chain(self.datagrams.drain(..))
            .collect()
    }
}
