//! Rows of SDK spans, as events in a ring.

use std::sync::Arc;

use tailscope_sdk_server::Sink;
use tailscope_signals::clock::{Clock, Cycles, Monotonic};
use tailscope_signals::event::{Event, What, abi};
use tailscope_signals::event_ring::EventRings;
use tailscope_signals::row::Row;

use super::names::SpanNames;

/// A row is read within so long of its span's end, in ns. One that says otherwise makes no sense.
const STALE_NS: u64 = 60_000_000_000;

/// A span that ended. Times in ns.
#[derive(Debug, Clone, Copy)]
struct Ended {
    at: u64,
    tid: u32,
    source: u16,
    ns: u64,
}

/// Where the rows of all processes go.
pub(super) struct Spans {
    clock: Clock,
    names: SpanNames,
    ring: Arc<EventRings>,
    /// Those that are not in the ring yet.
    ended: Vec<Ended>,
    /// Rows that made no sense.
    malformed: u64,
    /// The latest reading of the clock, in ns.
    now: u64,
}

impl Spans {
    /// `names`: those that have numbers already.
    pub(super) fn new(ring: EventRings, names: Vec<String>) -> Self {
        Self {
            clock: Clock::calibrate(),
            names: SpanNames::new(names),
            ring: Arc::new(ring),
            ended: Vec::new(),
            malformed: 0,
            now: Monotonic::now().0,
        }
    }

    pub(super) fn ring(&self) -> &Arc<EventRings> {
        &self.ring
    }

    pub(super) fn names(&self) -> &[String] {
        self.names.all()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Rows that made no sense.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed
    }

    /// To be called before rows are taken: all that ended by now then lies between two readings of the
    /// clocks.
    pub(super) fn refine_clock(&mut self) {
        self.clock.refine();
        self.now = Monotonic::now().0;
    }

    /// Hands on what was taken, in the order of the spans' ends, and writes it to the ring.
    pub(super) fn hand_on(&mut self, mut each: impl FnMut(&Event)) {
        self.ended.sort_by_key(|span| span.at);
        for span in self.ended.drain(..) {
            self.ring.write(span.bytes());
            each(&span.event());
        }
    }
}

impl Sink for Spans {
    type Name = u16;

    fn name(&mut self, _user: u32, text: Option<String>) -> u16 {
        self.names.number_of(text)
    }

    fn row(&mut self, _pid: u32, source: u16, row: &Row) {
        let end = row.begin.wrapping_add(row.wall);
        self.clock.reach(Cycles(end));
        let time = |cycles| self.clock.cycles_to_monotonic(Cycles(cycles)).0;
        let (start, end) = (time(row.begin), time(end));
        if end > self.now {
            self.now = Monotonic::now().0; // it ended while rows were read
        }
        let at = end.min(self.now);
        if self.now - at > STALE_NS {
            self.malformed += 1;
            return;
        }
        self.ended.push(Ended {
            at,
            tid: row.tid,
            source,
            ns: at.saturating_sub(start),
        });
    }
}

impl Ended {
    fn event(&self) -> Event {
        let Self { source, ns, .. } = *self;
        Event {
            at: self.at,
            tid: self.tid,
            what: What::Span { source, ns },
        }
    }

    /// The same as a ring holds it.
    fn bytes(&self) -> abi::tl_event {
        abi::tl_event {
            at: self.at,
            tid: self.tid,
            kind: abi::TL_SPAN as u8,
            small: self.source,
            x: self.ns as u32,
            y: (self.ns >> 32) as u32,
            ..Default::default()
        }
    }
}
