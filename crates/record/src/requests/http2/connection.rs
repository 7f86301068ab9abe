//! What is known of one connection of HTTP/2.

use std::collections::HashMap;

use tailscope_signals::slice::{Frame, Slice};

use crate::requests::hpack::{Headers, Table};

/// A connection of HTTP/2.
#[derive(Debug, Default)]
pub(in crate::requests) struct Connection {
    /// Streams on which something is open, and the numbers that they have among the sockets.
    pub(super) streams: HashMap<u32, u64>,
    /// The highest that has begun: one below it that is not open has ended.
    pub(super) highest: u32,
    /// Those whose answers are complete, but TCP keeps back their ends; and since when.
    pub(super) held: Vec<(u64, u64)>,
    /// Of what TLS has encrypted and the program has not sent yet, and whether their answers are
    /// complete.
    pub(super) unsent: Vec<(u64, bool)>,
    /// Inside of TLS: when bytes were decrypted last, and since when they could be received.
    pub(super) ready: (u64, u64),
    pub(super) table: Table,
    block: Block,
    /// The number of the latest part of headers.
    part: Option<u32>,
}

/// The headers that come in at present.
#[derive(Debug, Default)]
struct Block {
    bytes: Vec<u8>,
    goes_on: bool,
    /// A part of it was lost.
    broken: bool,
    /// The number among the sockets of the request that they begin; `None`: they begin none.
    of: Option<u64>,
}

impl Connection {
    /// The numbers that its streams have among the sockets.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        let held = self.held.iter().map(|(stream, _)| *stream);
        let unsent = self.unsent.iter().filter(|(_, complete)| *complete);
        let ended = held.chain(unsent.map(|(stream, _)| *stream));
        self.streams.values().copied().chain(ended)
    }

    /// Whether something is open on a stream.
    pub(in crate::requests) fn is_under_way(&self) -> bool {
        self.numbers().next().is_some()
    }

    /// Takes a part of headers. Returns whose they are and what they say, when they are complete and
    /// begin a request.
    pub(super) fn take_headers(&mut self, slice: &Slice, frame: Frame) -> Option<(u64, Headers)> {
        if !slice.text.is_empty() {
            let follows = self
                .part
                .is_none_or(|part| slice.part == part.wrapping_add(1));
            self.part = Some(slice.part);
            if !follows {
                self.table.forget(); // what was lost may have added to it
                self.block.broken = !frame.begins;
            }
            self.block.bytes.extend(&slice.text);
        }
        if frame.more {
            return None;
        }
        let block = std::mem::take(&mut self.block);
        let headers = self.table.read(&block.bytes, frame.cut || block.broken);
        Some((block.of.filter(|_| !block.broken)?, headers))
    }

    pub(super) fn begin_headers(&mut self, of: Option<u64>) {
        if self.block.goes_on {
            self.table.forget(); // the end of those before was lost
        }
        self.block = Block {
            goes_on: true,
            of,
            ..Block::default()
        };
    }
}
