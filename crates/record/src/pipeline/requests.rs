//! Requests that were put together from slices: their names, and their rows on the way to the ledger.

use tailscope_signals::row::Behind;
use tailscope_trace::{Cause, SpanName};

use super::{Batch, OTHER_NAMES, RowPipeline};
use crate::convert::{Context, Unit};
use crate::requests::{Behind as BehindRequest, Finished};

/// The most request names, and the most names of servers that they ask.
const MOST_REQUEST_NAMES: usize = 1000;
const MOST_PEERS: usize = 256;

impl RowPipeline {
    /// The name of a kind of requests. Clients choose paths: of too many names the rest is one.
    fn request_name(&mut self, text: &str) -> SpanName {
        if let Some(name) = self.request_names.get(text) {
            return *name;
        }
        if self.request_names.len() >= MOST_REQUEST_NAMES {
            return self.intern(OTHER_NAMES);
        }
        let name = self.intern(text);
        self.request_names.insert(text.to_owned(), name);
        name
    }

    /// The name of a server that requests ask.
    fn peer_name(&mut self, text: &str) -> SpanName {
        if let Some(name) = self.peer_names.get(text) {
            return *name;
        }
        if self.peer_names.len() >= MOST_PEERS {
            return self.intern(OTHER_NAMES);
        }
        let name = self.intern(text);
        self.peer_names.insert(text.to_owned(), name);
        name
    }

    /// The name of a request that had the thread: its kind, else its length and client.
    fn behind_name(&mut self, behind: &BehindRequest) -> SpanName {
        match &behind.name {
            Some(name) => self.request_name(name),
            None => self.name_of(Behind {
                peer: behind.peer,
                ns: behind.ns,
            }),
        }
    }
}

impl Batch<'_> {
    /// A request that was put together from slices.
    pub(crate) fn enter_request(&mut self, mut finished: Finished) {
        let pipeline = &mut *self.pipeline;
        pipeline.requests_seen += 1;
        let kind = pipeline.socket_span;
        let retention = pipeline.sampler.of(kind);
        let Some(kept) = pipeline.draw.keeps(retention, finished.row.wall) else {
            return;
        };
        finished.row.kept = kept;
        let span = match &finished.name {
            Some(name) => pipeline.request_name(name),
            None => kind,
        };
        let asked = finished.asked.map(|peer| match peer {
            Some(peer) => pipeline.peer_name(&peer.to_string()),
            None => pipeline.peer_name("a local server"),
        });
        let behind = finished
            .behind
            .as_ref()
            .map(|behind| pipeline.behind_name(behind));
        let weight = pipeline.weights.socket;
        let context = Context {
            unit: Unit::Nanos,
            span,
            pid: finished.row.pid,
            weight,
        };
        self.write_blamed(
            &finished.row,
            kind,
            context,
            [(Cause::Downstream, asked), (Cause::Queue, behind)],
            finished.parts,
        );
    }
}
