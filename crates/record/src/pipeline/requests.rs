//! Requests that were put together from slices: their names, and their rows on the way to the ledger.

use std::sync::Arc;

use tailscope_signals::clock::Monotonic;
use tailscope_signals::row::Behind;
use tailscope_trace::{Cause, SpanName};

use super::request_names::Named;
use super::{Batch, OTHER_NAMES, RowPipeline};
use crate::convert::{Context, Unit};
use crate::requests::{Behind as BehindRequest, Finished};

/// The most names of servers that requests ask.
const MOST_PEERS: usize = 256;
/// The most names that have a tail of their own; further ones share the tail of the source.
const MOST_TAILS: usize = 128;

impl RowPipeline {
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

    /// A name that has a place among those of requests, which are bounded.
    fn intern_request(&mut self, text: &str) -> SpanName {
        self.output.intern(text, u32::MAX, OTHER_NAMES)
    }

    /// The name of a request that had the thread: its kind, else its length and client.
    fn behind_name(&mut self, behind: &BehindRequest) -> SpanName {
        match &behind.name {
            Some(name) if self.request_names.has(name) => self.intern_request(name),
            _ => self.name_of(Behind {
                peer: behind.peer,
                ns: behind.ns,
            }),
        }
    }

    /// The kind by whose latest spans it is decided what is kept.
    fn tail_of(&mut self, span: SpanName) -> SpanName {
        if self.tails.contains(&span) {
            return span;
        }
        if self.tails.len() >= MOST_TAILS {
            return self.socket_span;
        }
        self.tails.insert(span);
        span
    }
}

impl Batch<'_> {
    /// A request that was put together from slices. Its row may wait until its name is decided.
    pub(crate) fn enter_request(&mut self, finished: Finished) {
        let pipeline = &mut *self.pipeline;
        pipeline.requests_seen += 1;
        let Some(name) = finished.name.clone() else {
            let kind = pipeline.socket_span;
            self.write_request(finished, kind);
            return;
        };
        let mut decided = Vec::new();
        let now = Monotonic::now().0;
        pipeline
            .request_names
            .offer(now, &name, finished, &mut decided);
        self.write_requests(decided);
    }

    /// Enters requests whose names are decided by now, or `all`.
    pub(crate) fn settle_requests(&mut self, all: bool) {
        let mut decided = Vec::new();
        let names = &mut self.pipeline.request_names;
        if all {
            names.finish(&mut decided);
        } else {
            names.advance(Monotonic::now().0, &mut decided);
        }
        self.write_requests(decided);
    }

    fn write_requests(&mut self, decided: Named<Finished>) {
        for (name, finished) in decided {
            let name = name.unwrap_or_else(|| Arc::from(OTHER_NAMES));
            let span = self.pipeline.intern_request(&name);
            self.write_request(finished, span);
        }
    }

    fn write_request(&mut self, mut finished: Finished, span: SpanName) {
        let pipeline = &mut *self.pipeline;
        let kind = pipeline.tail_of(span);
        let retention = pipeline.retention_of(kind);
        let Some(kept) = pipeline.draw.keeps(retention, finished.row.wall) else {
            return;
        };
        finished.row.kept = kept;
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
            links: finished.links,
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
