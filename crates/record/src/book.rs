//! The ledger while it is written, and what is known of its rows so far.

use tailscope_signals::clock::Clock;
use tailscope_signals::row::Row;
use tailscope_trace::{Cause, Error, LedgerWriter, SpanName};

use crate::StealClock;
use crate::convert::{Context, Unit, convert, running_ns};
use crate::live::Live;
use crate::sdk::Sink;

/// The ledger and its running figures.
pub(crate) struct Book {
    pub(crate) ledger: LedgerWriter,
    pub(crate) live: Live,
    /// Rows entered.
    pub(crate) rows: u64,
    /// Rows whose causes had to be cut to their wall time.
    pub(crate) overdrawn: u64,
    socket_span: SpanName,
    weights: Weights,
}

/// The weight of each row: 1 / the probability with which it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) socket: f64,
    pub(crate) sdk: f64,
}

impl Book {
    /// `socket_span`: the name of spans that come from sockets.
    pub(crate) fn new(mut ledger: LedgerWriter, socket_span: &str, weights: Weights) -> Self {
        let socket_span = ledger.intern(socket_span);
        Self {
            ledger,
            live: Live::new(),
            rows: 0,
            overdrawn: 0,
            socket_span,
            weights,
        }
    }

    /// Opens it for the rows of one look.
    pub(crate) fn open<'b>(
        &'b mut self,
        clock: &'b Clock,
        steal: Option<&'b StealClock>,
    ) -> Page<'b> {
        Page {
            book: self,
            clock,
            steal,
            failed: None,
        }
    }
}

/// The rows of one look. What fails is told when it is closed.
pub(crate) struct Page<'b> {
    book: &'b mut Book,
    clock: &'b Clock,
    steal: Option<&'b StealClock>,
    failed: Option<Error>,
}

impl Page<'_> {
    /// A row from a socket.
    pub(crate) fn enter_socket(&mut self, row: &Row) {
        let (span, weight) = (self.book.socket_span, self.book.weights.socket);
        self.write(
            row,
            Context {
                unit: Unit::Nanos,
                span,
                pid: row.pid,
                weight,
            },
        );
    }

    fn write(&mut self, row: &Row, context: Context) {
        let (mut span, overdrawn) = convert(row, self.clock, context);
        if let Some(steal) = self.steal {
            let stolen = steal.of(row.cpu, running_ns(&span));
            span.cause_ns[Cause::Steal.index()] = stolen;
            span.cause_n[Cause::Steal.index()] = u32::from(stolen > 0);
        }
        self.book.overdrawn += u64::from(overdrawn.is_some());
        self.book.rows += 1;
        self.book.live.add(span.wall_ns);
        if let Err(e) = self.book.ledger.push(&span) {
            self.failed = Some(e);
        }
    }

    /// Ends the look.
    pub(crate) fn close(self) -> Result<(), Error> {
        self.failed.map_or(Ok(()), Err)
    }
}

impl Sink for Page<'_> {
    fn intern(&mut self, name: &str) -> SpanName {
        self.book.ledger.intern(name)
    }

    fn enter(&mut self, pid: u32, span: SpanName, row: &Row) {
        let weight = self.book.weights.sdk;
        self.write(
            row,
            Context {
                unit: Unit::Cycles,
                span,
                pid,
                weight,
            },
        );
    }
}
