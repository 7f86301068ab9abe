//! How a run is to be made, and how it ended.

use std::net::SocketAddr;

use super::tally::Tally;
use crate::clock::Nanos;

/// What decides when requests go out.
pub enum Pace {
    /// Requests per second, whatever the server does.
    Open { rate: f64 },
    /// Each connection sends the next when an answer came.
    Closed,
}

/// How a run is made.
pub struct Plan {
    pub address: SocketAddr,
    pub pace: Pace,
    pub connections: usize,
    pub depth: usize,
    /// Each request goes out on a connection of its own; `connections` is how many at once.
    pub fresh: bool,
    pub warmup: Nanos,
    pub duration: Nanos,
    pub report_every: Option<Nanos>,
    pub spin: bool,
    pub seed: u64,
}

/// How a run ended.
pub struct Outcome {
    pub tally: Tally,
    /// Requests due in the window or after it that never got an answer.
    pub unanswered: usize,
    pub interrupted: bool,
    /// What cut it short; the tally holds what was measured until then.
    pub failure: Option<anyhow::Error>,
}
