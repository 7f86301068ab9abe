//! The rows on their way to the ledger, and what is known of them so far.

mod request_names;
mod requests;
mod sdk;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use tailscope_kernel::{Names, Source};
use tailscope_signals::abi;
use tailscope_signals::clock::{Clock, Cycles, Monotonic};
use tailscope_signals::retention::Retention;
use tailscope_signals::row::{Behind, Row};
use tailscope_trace::{Cause, Error, SpanName, SpanRow};

use crate::StealClock;
use crate::convert::{Context, Unit, convert, running_ns};
use crate::counting::Counting;
use crate::live::{Live, Owners};
use crate::output::Output;
use crate::requests::{Finished, Links};
use crate::retention::{Draw, TailSampler};
use crate::sdk_names::SdkNames;
use crate::stacks::{About, Part, StackPipeline};
use request_names::RequestNames;

/// Where rows go, and their running figures.
pub(crate) struct RowPipeline {
    pub(crate) output: Output,
    pub(crate) live: Live,
    owners: Owners,
    /// Rows entered.
    pub(crate) rows: u64,
    /// Rows whose causes had to be cut to their wall time.
    pub(crate) overdrawn: u64,
    socket_span: SpanName,
    /// The names of the sources that are probes, in their order.
    probe_spans: Vec<SpanName>,
    /// Names that arguments gave, by their number.
    texts: HashMap<u16, SpanName>,
    /// Who is to blame, by their number.
    blamed: HashMap<u16, SpanName>,
    /// Requests that others queued behind.
    behind: HashMap<String, SpanName>,
    /// Which requests have names, and the names of servers that they asked.
    pub(crate) request_names: RequestNames<Finished>,
    peer_names: HashMap<String, SpanName>,
    /// Names of requests that have a tail of their own.
    tails: HashSet<SpanName>,
    /// What is kept of each kind until that is decided anew.
    retentions: HashMap<SpanName, Retention>,
    draw: Draw,
    /// Requests put together from slices, kept or not.
    pub(crate) requests_seen: u64,
    sdk_names: SdkNames,
    weights: Weights,
    pub(crate) sampler: TailSampler,
    pub(crate) counting: Counting,
    /// The first thing that went wrong with the ledger since somebody asked.
    pub(crate) trouble: Option<Error>,
    pub(crate) tap: Option<Tap>,
    /// Samples of stacks on their way to the ledger, where they are wanted.
    pub(crate) stacks: Option<StackPipeline>,
}

/// Gets every row that is written, with the id of its process's user and its span's name.
pub type Tap = Box<dyn FnMut(&SpanRow, u32, &str) + Send>;

/// The most names of a recording, without those of requests. Programs choose names, and must not
/// fill the memory with them.
const MOST_NAMES: u32 = 2048;

/// The most requests that are named because others queued behind them.
const MOST_BEHIND: usize = 1024;

/// A request that others queued behind: its length to one digit, so that there are few such names,
/// and whose it was.
fn describe(behind: Behind) -> String {
    let mut unit = 1;
    while behind.ns / unit >= 10 {
        unit *= 10;
    }
    let rounded = behind.ns / unit * unit;
    let length = match rounded {
        0..1_000_000 => format!("{} µs", rounded / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", rounded / 1_000_000),
        _ => format!("{} s", rounded / 1_000_000_000),
    };
    match behind.peer {
        Some(peer) => format!("{length} request of {peer}"),
        None => format!("{length} request of a local client"),
    }
}

/// In words, why TCP kept data back (`enum ts_held`).
const fn why_held(why: u16) -> &'static str {
    match why as u32 {
        abi::TS_HELD_NAGLE => "nagle",
        abi::TS_HELD_CORK => "cork",
        abi::TS_HELD_WINDOW => "receive window",
        abi::TS_HELD_CONGESTION => "congestion window",
        _ => "other",
    }
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

impl RowPipeline {
    /// `socket_span`: the name of spans that come from sockets; `probe_spans`: of those that come
    /// from probes, source by source.
    pub(crate) fn new(
        mut output: Output,
        socket_span: &str,
        probe_spans: &[String],
        weights: Weights,
        sampler: TailSampler,
        counting: Counting,
    ) -> Self {
        let mut intern = |name: &str| output.intern(name, MOST_NAMES, OTHER_NAMES);
        let socket_span = intern(socket_span);
        let probe_spans = probe_spans.iter().map(|name| intern(name)).collect();
        Self {
            output,
            live: Live::default(),
            owners: Owners::default(),
            rows: 0,
            overdrawn: 0,
            socket_span,
            probe_spans,
            texts: HashMap::new(),
            blamed: HashMap::new(),
            behind: HashMap::new(),
            request_names: RequestNames::default(),
            peer_names: HashMap::new(),
            tails: HashSet::new(),
            retentions: HashMap::new(),
            draw: Draw::default(),
            requests_seen: 0,
            sdk_names: SdkNames::default(),
            weights,
            sampler,
            counting,
            trouble: None,
            tap: None,
            stacks: None,
        }
    }

    /// From now on other programs of the kernel number names.
    pub(crate) fn forget_numbers(&mut self) {
        self.texts.clear();
        self.blamed.clear();
    }

    fn intern(&mut self, name: &str) -> SpanName {
        // Names of requests take no room from the others.
        let most = MOST_NAMES + self.request_names.len() as u32;
        self.output.intern(name, most, OTHER_NAMES)
    }

    /// The name of a request that others queued behind. Clients choose their ports: of too many
    /// names the rest is one.
    fn name_of(&mut self, behind: Behind) -> SpanName {
        let text = describe(behind);
        if let Some(name) = self.behind.get(&text) {
            return *name;
        }
        if self.behind.len() >= MOST_BEHIND {
            return self.intern(OTHER_NAMES);
        }
        let name = self.intern(&text);
        self.behind.insert(text, name);
        name
    }

    /// What is kept of a kind, since that was last decided.
    fn retention_of(&mut self, kind: SpanName) -> Retention {
        let sampler = &self.sampler;
        *self
            .retentions
            .entry(kind)
            .or_insert_with(|| sampler.of(kind))
    }

    /// What is kept was decided anew.
    pub(crate) fn has_steered(&mut self) {
        self.retentions.clear();
    }

    /// What is kept of each source of the kernel's programs.
    pub(crate) fn retentions(&self) -> impl Iterator<Item = (Source, Retention)> {
        let probes = self.probe_spans.iter().enumerate();
        let of_probes = probes.map(|(place, kind)| (Source::Probes(place as u8), *kind));
        std::iter::once((Source::Sockets, self.socket_span))
            .chain(of_probes)
            .map(|(source, kind)| (source, self.sampler.of(kind)))
    }

    /// Opens it for the rows of one look.
    pub(crate) fn open<'b>(
        &'b mut self,
        clock: &'b mut Clock,
        steal: Option<&'b StealClock>,
        names: &'b Names<'b>,
    ) -> Batch<'b> {
        self.live.advance(Instant::now());
        Batch {
            pipeline: self,
            clock,
            steal,
            names,
        }
    }
}

/// The rows of one poll. What fails is kept as the pipeline's error.
pub(crate) struct Batch<'b> {
    pipeline: &'b mut RowPipeline,
    clock: &'b mut Clock,
    steal: Option<&'b StealClock>,
    names: &'b Names<'b>,
}

impl Batch<'_> {
    /// A row from a socket.
    pub(crate) fn enter_socket(&mut self, row: &Row) {
        let (span, weight) = (self.pipeline.socket_span, self.pipeline.weights.socket);
        self.write(
            row,
            span,
            Context {
                unit: Unit::Nanos,
                span,
                pid: row.pid,
                weight,
                links: Links::default(),
            },
        );
    }

    /// A row from a probe.
    pub(crate) fn enter_probe(&mut self, row: &Row) {
        let names = self.names;
        let pipeline = &mut *self.pipeline;
        let Some(&kind) = pipeline.probe_spans.get(usize::from(row.name)) else {
            return; // of a source that there is not
        };
        let span = match row.text {
            0 => kind,
            number => match pipeline.texts.get(&number) {
                Some(name) => *name,
                None => {
                    let text = names.text(number);
                    let name = pipeline.intern(text.as_deref().unwrap_or(OTHER_NAMES));
                    pipeline.texts.insert(number, name);
                    name
                }
            },
        };
        let weight = pipeline.weights.probe;
        self.write(
            row,
            kind,
            Context {
                unit: Unit::Nanos,
                span,
                pid: row.pid,
                weight,
                links: Links::default(),
            },
        );
    }

    /// `kind` is what its retention is decided by: its name, or its source's.
    fn write(&mut self, row: &Row, kind: SpanName, context: Context) {
        let parts = match self.pipeline.stacks {
            Some(_) => vec![self.only_part(row, context.unit)],
            None => Vec::new(),
        };
        self.write_blamed(row, kind, context, [], parts);
    }

    /// The time of a span that one thread worked for from its begin to its end.
    fn only_part(&self, row: &Row, unit: Unit) -> Part {
        let (from, to) = match unit {
            Unit::Nanos => (row.begin, row.begin.saturating_add(row.wall)),
            Unit::Cycles => {
                let moment = |at| self.clock.cycles_to_monotonic(Cycles(at)).0;
                (moment(row.begin), moment(row.begin.wrapping_add(row.wall)))
            }
        };
        let tid = row.tid;
        Part { tid, from, to }
    }

    /// The same, with whom to blame for causes that no meter knows.
    fn write_blamed<const N: usize>(
        &mut self,
        row: &Row,
        kind: SpanName,
        mut context: Context,
        blamed: [(Cause, Option<SpanName>); N],
        parts: Vec<Part>,
    ) {
        context.weight /= row.kept.probability();
        let (mut span, overdrawn) = convert(row, self.clock, context);
        if let Some(steal) = self.steal {
            let stolen = steal.of(row.cpu, running_ns(&span));
            span.cause_ns[Cause::Steal.index()] = stolen;
            span.cause_n[Cause::Steal.index()] = u32::from(stolen > 0);
        }
        self.blame(row, &mut span);
        for (cause, who) in blamed {
            span.cause_by[cause.index()] = who;
        }
        if let Some(counts) = &row.counts {
            span.counts = self.pipeline.counting.of_row(counts);
        }
        self.pipeline.overdrawn += u64::from(overdrawn.is_some());
        self.pipeline.rows += 1;
        self.pipeline.sampler.add(kind, span.wall_ns, span.weight);
        let RowPipeline {
            live,
            owners,
            output,
            tap,
            trouble,
            stacks,
            rows,
            ..
        } = &mut *self.pipeline;
        let user = owners.user_of(span.pid as u32);
        live.enter(&span, (user, span.span), || output.name(span.span));
        if let Some(tap) = tap {
            tap(&span, user, &output.name(span.span));
        }
        if let Some(stacks) = stacks {
            let about = About {
                row: *rows,
                span: output.name(span.span),
                pid: span.pid,
                user,
                start_ns: span.start_ns,
                wall_ns: span.wall_ns,
                weight: span.weight,
                to_unix: self.clock.monotonic_to_unix(Monotonic(0)),
            };
            stacks.end(about, parts);
        }
        if let Err(e) = output.push(&span) {
            trouble.get_or_insert(e);
        }
    }

    /// Names who is to blame. A process may have written any number: what nobody has yet is
    /// looked for again.
    fn blame(&mut self, row: &Row, span: &mut SpanRow) {
        let (pipeline, names) = (&mut *self.pipeline, self.names);
        for (metered, &who) in row.who.iter().enumerate() {
            let cause = Cause::METERED[metered].index();
            if who != 0 && span.cause_ns[cause] > 0 {
                span.cause_by[cause] = pipeline.blamed.get(&who).copied().or_else(|| {
                    let name = pipeline.intern(&names.blamed(who)?);
                    pipeline.blamed.insert(who, name);
                    Some(name)
                });
            }
        }
        if row.request.tcp_ns > 0 {
            let why = pipeline.intern(why_held(row.request.tcp_why));
            span.cause_by[Cause::Tcp.index()] = Some(why);
        }
        if let Some(behind) = row.request.behind {
            span.cause_by[Cause::Queue.index()] = Some(pipeline.name_of(behind));
        }
    }
}
