//! The ledger while it is written, and what is known of its rows so far.

use std::collections::HashMap;

use tailscope_kernel::Source;
use tailscope_signals::clock::Clock;
use tailscope_signals::keeping::Keeping;
use tailscope_signals::row::Row;
use tailscope_trace::{Cause, Error, LedgerWriter, SpanName};

use crate::StealClock;
use crate::convert::{Context, Unit, convert, running_ns};
use crate::keeping::Keeper;
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
    /// The names of the sources that are probes, in their order.
    probe_spans: Vec<SpanName>,
    /// Names that arguments gave, by their number.
    texts: HashMap<u16, SpanName>,
    weights: Weights,
    pub(crate) keeper: Keeper,
}

/// The name of spans whose own came when the table of names was full.
const OTHER_NAMES: &str = "(other)";

/// How many spans each metered one stands for, by its source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weights {
    pub(crate) socket: f64,
    pub(crate) sdk: f64,
    pub(crate) probe: f64,
}

impl Book {
    /// `socket_span`: the name of spans that come from sockets; `probe_spans`: of those that come
    /// from probes, source by source.
    pub(crate) fn new(
        mut ledger: LedgerWriter,
        socket_span: &str,
        probe_spans: &[String],
        weights: Weights,
        keeper: Keeper,
    ) -> Self {
        let socket_span = ledger.intern(socket_span);
        let probe_spans = probe_spans.iter().map(|name| ledger.intern(name)).collect();
        Self {
            ledger,
            live: Live::new(),
            rows: 0,
            overdrawn: 0,
            socket_span,
            probe_spans,
            texts: HashMap::new(),
            weights,
            keeper,
        }
    }

    /// What is kept of each source of the kernel's programs.
    pub(crate) fn keepings(&self) -> impl Iterator<Item = (Source, Keeping)> {
        let probes = self.probe_spans.iter().enumerate();
        let of_probes = probes.map(|(place, kind)| (Source::Probes(place as u8), *kind));
        std::iter::once((Source::Sockets, self.socket_span))
            .chain(of_probes)
            .map(|(source, kind)| (source, self.keeper.of(kind)))
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
            span,
            Context {
                unit: Unit::Nanos,
                span,
                pid: row.pid,
                weight,
            },
        );
    }

    /// A row from a probe. `text` says what name an argument gave, by its number; what it does
    /// not know is one of too many.
    pub(crate) fn enter_probe(&mut self, row: &Row, text: impl FnOnce(u16) -> Option<String>) {
        let book = &mut *self.book;
        let Some(&kind) = book.probe_spans.get(usize::from(row.name)) else {
            return; // of a source that there is not
        };
        let span = match row.text {
            0 => kind,
            number => *book.texts.entry(number).or_insert_with(|| {
                let text = text(number);
                book.ledger.intern(text.as_deref().unwrap_or(OTHER_NAMES))
            }),
        };
        let weight = book.weights.probe;
        self.write(
            row,
            kind,
            Context {
                unit: Unit::Nanos,
                span,
                pid: row.pid,
                weight,
            },
        );
    }

    /// `kind` is what its keeping is decided by: its name, or its source's.
    fn write(&mut self, row: &Row, kind: SpanName, mut context: Context) {
        context.weight /= row.kept.probability();
        let (mut span, overdrawn) = convert(row, self.clock, context);
        if let Some(steal) = self.steal {
            let stolen = steal.of(row.cpu, running_ns(&span));
            span.cause_ns[Cause::Steal.index()] = stolen;
            span.cause_n[Cause::Steal.index()] = u32::from(stolen > 0);
        }
        self.book.overdrawn += u64::from(overdrawn.is_some());
        self.book.rows += 1;
        self.book.live.add(span.wall_ns, span.weight);
        self.book.keeper.add(kind, span.wall_ns, span.weight);
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
            span,
            Context {
                unit: Unit::Cycles,
                span,
                pid,
                weight,
            },
        );
    }
}
