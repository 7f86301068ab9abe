//! From the row that was measured to the row of the ledger: pure, and the only place where one
//! becomes the other.
//!
//! A row does not store `running`: it is the wall time less all causes. If the causes exceed the
//! wall time, the largest cause is cut, and `ledger.json` counts the row as `overdrawn`.

use tailscope_signals::clock::{Clock, Cycles, Monotonic};
use tailscope_signals::row::{CAUSES, Row};
use tailscope_trace::{Cause, Link, SpanName, SpanRow};

use crate::requests::Links;

/// The unit of a row's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Cycles: the SDK.
    Cycles,
    /// ns of the monotonic clock: the kernel.
    Nanos,
}

/// What is the same for many rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Context {
    pub(crate) unit: Unit,
    pub(crate) span: SpanName,
    pub(crate) pid: u32,
    pub(crate) weight: f64,
    /// What joins the span with other records.
    pub(crate) links: Links,
}

/// The books of a row don't balance: its causes add up to more than its wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overdrawn(pub(crate) i64);

// A cause that was added to the meters needs its place in the ledger's list.
const _: () = assert!(Cause::METERED.len() == CAUSES);

/// Makes the ledger's row. Where the causes exceed the wall time (an interrupt between two reads
/// of the clock), the largest gives way, and the excess is told.
pub(crate) fn convert(row: &Row, clock: &Clock, context: Context) -> (SpanRow, Option<Overdrawn>) {
    let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
    let (start_ns, wall_ns) = match context.unit {
        Unit::Cycles => (
            clock.cycles_to_unix(Cycles(row.begin)),
            clock.length_ns(Cycles(row.begin), row.wall),
        ),
        Unit::Nanos => (
            clock.monotonic_to_unix(Monotonic(row.begin)),
            signed(row.wall),
        ),
    };
    let mut span = SpanRow {
        start_ns,
        span: context.span,
        id: row.id.map(|id| id as i64),
        pid: context.pid as i32,
        tid: row.tid as i32,
        cpu: if row.cpu == u16::MAX {
            -1
        } else {
            i32::from(row.cpu)
        },
        wall_ns,
        weight: context.weight,
        ..SpanRow::default()
    };
    for metered in 0..CAUSES {
        let cause = Cause::METERED[metered].index();
        span.cause_ns[cause] = signed(row.ns[metered]).min(wall_ns);
        span.cause_n[cause] = row.n[metered];
    }
    for (cause, ns) in [
        (Cause::Queue, row.queue_ns),
        (Cause::Tcp, row.request.tcp_ns),
        (Cause::Accept, row.request.accept_ns),
        (Cause::Unknown, row.request.unknown_ns),
        (Cause::Downstream, row.request.downstream_ns),
    ] {
        span.cause_ns[cause.index()] = signed(ns).min(wall_ns);
        span.cause_n[cause.index()] = u32::from(ns > 0);
    }
    span.cause_n[Cause::Downstream.index()] = row.request.downstreams;
    span.others = row.request.others;
    span.links = links(&context.links, clock);
    let excess = balance(&mut span);
    (span, (excess > 0).then_some(Overdrawn(excess)))
}

/// What joins a span with other records, as the ledger has it.
fn links(of: &Links, clock: &Clock) -> [Option<i64>; Link::COUNT] {
    let mut links = [None; Link::COUNT];
    links[Link::Connection.index()] = of.connection;
    if let Some(asked) = &of.asked {
        let ns = i64::try_from(asked.ready.saturating_sub(asked.sent)).unwrap_or(i64::MAX);
        links[Link::AskedConnection.index()] = Some(asked.connection);
        links[Link::AskedStart.index()] = Some(clock.monotonic_to_unix(Monotonic(asked.sent)));
        links[Link::AskedNs.index()] = Some(ns);
    }
    if let Some(trace) = &of.trace {
        links[Link::TraceHigh.index()] = Some((trace.id >> 64) as i64);
        links[Link::TraceLow.index()] = Some(trace.id as i64);
        links[Link::TraceParent.index()] = Some(trace.parent as i64);
    }
    links
}

/// The span's own running time: what no cause took.
pub(crate) fn running_ns(span: &SpanRow) -> i64 {
    span.cause_ns
        .iter()
        .fold(span.wall_ns, |left, ns| left.saturating_sub(*ns))
}

fn balance(span: &mut SpanRow) -> i64 {
    let excess = running_ns(span).saturating_neg().max(0);
    let mut left = excess;
    while left > 0 {
        let Some(largest) = span.cause_ns.iter_mut().max() else {
            break;
        };
        let taken = left.min(*largest);
        if taken == 0 {
            break;
        }
        *largest -= taken;
        left -= taken;
    }
    excess
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use tailscope_signals::row::Request;

    use super::*;
    use crate::requests::{Asked, Trace};

    static CLOCK: LazyLock<Clock> = LazyLock::new(Clock::calibrate);

    fn context() -> Context {
        Context {
            unit: Unit::Nanos,
            span: SpanName::default(),
            pid: 7,
            weight: 1.0,
            links: Links::default(),
        }
    }

    proptest! {
        #[test]
        fn the_books_balance_for_any_row(
            wall in 0..1u64 << 50,
            ns in proptest::array::uniform14(0..1u64 << 48),
            queue_ns in 0..1u64 << 48,
            accept_ns in 0..1u64 << 48,
            tcp_ns in 0..1u64 << 48,
        ) {
            let request = Request { accept_ns, tcp_ns, ..Request::default() };
            let row = Row { wall, ns, queue_ns, request, ..Row::default() };
            let (span, overdrawn) = convert(&row, &CLOCK, context());
            prop_assert!(running_ns(&span) >= 0);
            prop_assert!(span.cause_ns.iter().all(|ns| *ns >= 0));
            prop_assert_eq!(overdrawn.is_some(), ns.iter().map(|n| (*n).min(wall)).sum::<u64>()
                + [queue_ns, accept_ns, tcp_ns].map(|ns| ns.min(wall)).iter().sum::<u64>() > wall);
        }

        #[test]
        fn foreign_numbers_never_panic(begin: u64, wall: u64, ns: [u64; CAUSES], queue_ns: u64) {
            let row = Row { begin, wall, ns, queue_ns, ..Row::default() };
            for unit in [Unit::Cycles, Unit::Nanos] {
                let _ = convert(&row, &CLOCK, Context { unit, ..context() });
            }
        }
    }

    #[test]
    fn links_of_a_request_are_columns() {
        let trace = Trace {
            id: (7 << 64) | u128::from(u64::MAX),
            parent: 9,
        };
        let asked = Asked {
            connection: -5,
            sent: 1_000,
            ready: 1_400,
        };
        let links = Links {
            connection: Some(3),
            asked: Some(asked),
            trace: Some(trace),
        };
        let context = Context { links, ..context() };
        let (span, _) = convert(&Row::default(), &CLOCK, context);
        let of = |link: Link| span.links[link.index()];
        assert_eq!(of(Link::Connection), Some(3));
        assert_eq!(
            (of(Link::AskedConnection), of(Link::AskedNs)),
            (Some(-5), Some(400))
        );
        assert_eq!(
            of(Link::AskedStart).map(|at| at - span.start_ns),
            Some(1_000)
        );
        assert_eq!(
            (of(Link::TraceHigh), of(Link::TraceLow)),
            (Some(7), Some(-1))
        );
        assert_eq!(of(Link::TraceParent), Some(9));
    }

    #[test]
    fn the_largest_cause_gives_way() {
        let mut row = Row {
            wall: 100,
            ..Row::default()
        };
        row.ns[0] = 80;
        row.ns[7] = 30;
        let (span, overdrawn) = convert(&row, &CLOCK, context());
        assert_eq!((span.cause_ns[0], span.cause_ns[7]), (70, 30));
        assert_eq!(overdrawn, Some(Overdrawn(10)));
    }
}
