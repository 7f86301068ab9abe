//! Rows of SDK spans.

use tailscope_sdk_server::Sink;
use tailscope_signals::clock::Cycles;
use tailscope_signals::row::Row;
use tailscope_trace::SpanName;

use super::Batch;
use crate::convert::{Context, Unit};
use crate::requests::Links;

impl Sink for Batch<'_> {
    type Name = SpanName;

    fn name(&mut self, user: u32, text: Option<String>) -> SpanName {
        let text = self.pipeline.sdk_names.allowed(user, text);
        self.pipeline.intern(&text)
    }

    fn row(&mut self, pid: u32, span: SpanName, row: &Row) {
        let weight = self.pipeline.weights.sdk;
        self.clock.reach(Cycles(row.begin.wrapping_add(row.wall)));
        self.write(
            row,
            span,
            Context {
                unit: Unit::Cycles,
                span,
                pid,
                weight,
                links: Links::default(),
            },
        );
    }
}
