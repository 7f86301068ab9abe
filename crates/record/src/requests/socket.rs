//! What a socket remembers: the request that is open on it, or what another server was asked.

use std::collections::VecDeque;

use tailscope_signals::slice::Peer;

use super::statements::Statements;
use super::work::WorkId;

/// A send to another server whose answer has not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) work: WorkId,
    pub(super) sent: u64,
    /// Several requests could have sent it: the oldest was taken.
    pub(super) guess: bool,
}

/// A socket of a watched process.
#[derive(Debug, Default)]
pub(super) struct Socket {
    pub(super) peer: Peer,
    pub(super) touched: u64,
    /// The request that is open here.
    pub(super) open: Option<WorkId>,
    /// Requests overlap on this connection: none of them is recorded.
    pub(super) multiplexed: bool,
    /// What clients prepared here.
    pub(super) statements: Statements,
    /// Inside of TLS there is HTTP/2.
    pub(super) http2: bool,
    /// What it carries is encrypted.
    pub(super) encrypted: bool,
    /// Calls without an answer, oldest first.
    pub(super) calls: VecDeque<Call>,
    /// Whose answer comes in at present.
    pub(super) answers: Option<Call>,
}
