//! What is watched for hazards: the server that listens on an address, or processes by their ids.

use std::net::SocketAddr;

use crate::listening;

/// A replica's processes, however they are named.
#[derive(Debug, Clone)]
pub enum Target {
    /// Those that listen on this address.
    Address(SocketAddr),
    /// This one.
    Process(u32),
}

impl Target {
    /// Its processes now. `known`: those that it had and that still live. To search for a
    /// listening socket takes ms, so that is only done where none is known.
    pub(crate) fn processes(&self, known: &[u32]) -> Vec<u32> {
        match self {
            _ if !known.is_empty() => known.to_vec(),
            Self::Process(pid) => vec![*pid],
            Self::Address(address) => listening::processes(*address),
        }
    }
}
