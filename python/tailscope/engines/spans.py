"""The spans that are explained: which rows they are, what is known of them, and where in time each
of them lies.

What `measure` may do with them holds for the expressions here: they mean the same on every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import ibis

from tailscope.engines.engine import Engine, filled
from tailscope.ledger.causes import IDLE, QUEUE, RUNNING, RUNQUEUE
from tailscope.ledger.counters import is_counter
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.totals import Overview, Total

if TYPE_CHECKING:
    from ibis.expr.types import BooleanValue, FloatingScalar, IntegerValue, Table

    from tailscope.engines.sample import Sample

#: The columns that say whose thread a row is of.
THREAD = ("ledger", "pid", "tid")
#: Causes whose events tell what they cost beyond their time (`statistics.interrupt_penalty`).
DOSED = ("irq",)
#: Equal-time pieces of the recording at most; the bootstrap resamples them, the report draws them.
BLOCKS = 256


class Queue(Protocol):
    """The spans that waited for each other, which `statistics.replay` finds and replays."""

    def knowing(self, causes: Sequence[str]) -> Self:
        """Only the spans in which some causes were measured."""


@dataclass(frozen=True)
class Spans:
    """The spans that are explained: a filtered view, and the expression for a row's place in time.

    `moment` is the ns since the first block began, as if the blocks of all recordings followed each
    other; a block lasts 2^`power` ns.

    `active` are the causes that are above 0 in some rows; the others cost no query. `partial` are
    the causes and counters that are null in some rows. `counters` are the hardware counters that
    some rows have.

    Percentiles are decided by the slow spans, and a fix only makes spans faster. So the few spans
    at and above `floor_bin` are kept apart in `tail`, a small table, and most questions go there.
    """

    engine: Engine
    table: Table
    moment: IntegerValue
    power: int
    active: tuple[str, ...]
    partial: frozenset[str]
    blocks: int
    columns: frozenset[str]
    counters: tuple[str, ...] = ()
    #: Rows of the ledger: these are no more.
    rows: int = 0
    #: Whether each row stands for one span: then no question reads the weights.
    single: bool = False
    #: Whether all requests are there, from when their data was ready: they can be replayed.
    replayable: bool = False
    #: Requests of other names, which may have had the same threads; None where there are none. A
    #: row's `moment` is a column here.
    others: Table | None = None
    #: How many these are.
    other_rows: int = 0
    #: Those that waited for each other, to be replayed; None where nobody asked for it, or can't.
    queued: Queue | None = None
    #: All of their rows, where these are few: then no question goes to the engine.
    in_memory: Sample | None = None
    #: Of very many rows those that are looked at one by one, in a table of their own.
    subset: Spans | None = None
    #: The bin of wall time below which the table has no rows.
    floor_bin: int = 0
    tail: Spans | None = None

    @property
    def block(self) -> IntegerValue:
        """The number of a row's time block."""
        return self.moment >> self.power

    @property
    def block_s(self) -> float:
        """How long a block lasts, in s."""
        return (1 << self.power) / 1e9

    def weight(self) -> FloatingScalar:
        """How many spans the rows of a group stand for."""
        return ibis._.count().cast("float64") if self.single else ibis._.weight.sum()

    def weigh(self, value: IntegerValue) -> FloatingScalar:
        """The sum of a column over the spans that the rows of a group stand for."""
        return (value.cast("float64") if self.single else ibis._.weight * value).sum()

    def value(self, cause: str) -> IntegerValue:
        """A cause's ns in each span. `running` is what is left of the wall time, never below 0."""
        if cause != RUNNING:
            stored = self.table[column(cause)]
            return stored.fill_null(0) if cause in self.partial else stored
        rest = self.table.wall_ns
        for name in self.active:
            rest = rest - self.value(name)
        return ibis.greatest(rest, 0)

    @property
    def woke_idle(self) -> BooleanValue:
        """Whether a span waited for an idle CPU to wake up, and for no other thread."""
        by = f"{RUNQUEUE}_by"
        if by not in blame_columns(self):
            return ibis.literal(False)
        return (self.table[by] == IDLE).fill_null(False)

    def nullable(self, causes: Sequence[str]) -> tuple[str, ...]:
        """Those of some causes that are null in some rows."""
        return tuple(sorted(set(causes) & self.partial))

    def knowing(self, causes: Sequence[str]) -> Spans:
        """Only the spans in which all of some causes were measured."""
        missing = self.nullable(causes)
        if not missing:
            return self
        queued = self.queued and self.queued.knowing(missing)
        return replace(
            self,
            table=self.table.filter([self.table[column(cause)].notnull() for cause in missing]),
            queued=queued,
            in_memory=self.in_memory and self.in_memory.where(self.in_memory.where_known(missing)),
            subset=None,
            tail=self.tail and replace(self.tail.knowing(causes), queued=queued),
        )


def events_column(cause: str) -> str:
    """The ledger's column of how often a cause struck."""
    return f"{cause}_n"


def dosed(spans: Spans) -> list[str]:
    """The causes of which the number of events is asked row by row."""
    return [name for name in DOSED if name in spans.active and events_column(name) in spans.columns]


def column(cause: str) -> str:
    """The ledger's column of a cause's time or of a counter."""
    return cause if is_counter(cause) else f"{cause}_ns"


def strike_rows(
    engine: Engine, table: Table, ledger: Ledger, whole: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """The causes and counters that are above 0 in some rows, and those that are null in some.

    `whole` says that the table is all rows of the ledger: then the files' statistics tell, where
    there are any, and no row needs to be looked at.
    """
    extents = ledger.contents.extents
    names = (*ledger.stored_causes, *ledger.stored_counters)
    active, partial = set(), set()
    sums: dict[str, Any] = {"rows": ibis._.count()}
    for name in names:
        extent = extents.get(column(name))
        if extent is not None and extent.known and (whole or (extent.most or 0) <= 0):
            active |= {name} if (extent.most or 0) > 0 else set()
            partial |= {name} if extent.nulls else set()
        else:
            value = table[column(name)]
            sums |= {f"{name}_most": value.max(), f"{name}_count": value.count()}
    if len(sums) > 1:
        found = {name: int(filled(v)[0]) for name, v in engine.run(table.agg(**sums)).items()}
        active |= {name for name in names if found.get(f"{name}_most", 0) > 0}
        partial |= {
            name for name in names if found.get(f"{name}_count", found["rows"]) < found["rows"]
        }
    return tuple(name for name in names if name in active), frozenset(partial & active)


@dataclass(frozen=True)
class Place:
    """Where a recording's time blocks begin: in time, and in the numbers of all blocks."""

    ledger: int
    first_ns: int
    start: int


def block_power(lengths_ns: Sequence[int]) -> int:
    """The smallest power of two (ns) that cuts recordings into at most `BLOCKS` in all.

    A power of two, so that a row's block is a shift; there are more than half of `BLOCKS`.
    """
    power = 0
    while sum((length >> power) + 1 for length in lengths_ns) > max(BLOCKS, len(lengths_ns)):
        power += 1
    return power


def time_blocks(totals: Sequence[Total]) -> tuple[list[Place], int, int]:
    """Each recording's place, the blocks' common length as a power of two (ns), and their number.

    The blocks of two recordings follow each other: a gap of days between them makes none.
    """
    ranges: dict[int, tuple[int, int]] = {}
    for total in totals:
        first, last = ranges.get(total.ledger, (total.first_ns, total.last_ns))
        ranges[total.ledger] = (min(first, total.first_ns), max(last, total.last_ns))
    power = block_power([last - first for first, last in ranges.values()])
    places = []
    start = 0
    for ledger, (first, last) in sorted(ranges.items()):
        places.append(Place(ledger, first, start))
        start += ((last - first) >> power) + 1
    return places, power, start


def spans_named(
    engine: Engine, table: Table, overview: Overview, ledger: Ledger, name: str
) -> Spans:
    """The rows of one span name, with their block."""
    totals = [total for total in overview.totals if total.span == name]
    alone = len({total.span for total in overview.totals}) == 1
    everything = table
    if not alone:
        table = table.filter(table.span == name)
    places, power, blocks = time_blocks(totals)
    moment = moment_of(table, places, power)
    whole = alone and not overview.left_out
    spans = spans_of(engine, table, ledger, moment, blocks, power, whole)
    spans = replace(spans, single=all(total.single == total.rows for total in totals))
    spans = replace(spans, replayable=knows_queue(spans))
    return spans if alone or not spans.replayable else beside(spans, everything, places, name)


def beside(spans: Spans, table: Table, places: Sequence[Place], name: str) -> Spans:
    """The spans, with the requests of other names in that time, for which they may have waited."""
    recordings = table.ledger.isin([place.ledger for place in places])
    others = table.filter(recordings, table.span != name, table[column(QUEUE)].notnull())
    others = others.mutate(moment=moment_of(others, places, spans.power))
    last = spans.blocks << spans.power
    others = others.filter(others.moment >= 0, others.moment < last)
    found = spans.engine.run(others.agg(rows=ibis._.count(), most=ibis._.weight.max()))
    rows = int(found["rows"][0])
    if not rows:
        return spans
    if float(found["most"][0]) > 1:
        return replace(spans, replayable=False)
    return replace(spans, others=others, other_rows=rows)


def moment_of(table: Table, places: Sequence[Place], power: int) -> IntegerValue:
    """Where a row lies in time, see `Spans`."""
    moment = None
    for place in reversed(places):
        its = table.start_ns - (place.first_ns - (place.start << power))
        moment = its if moment is None else ibis.ifelse(table.ledger == place.ledger, its, moment)
    return moment


def knows_queue(spans: Spans) -> bool:
    """Whether every request is a row, says how long it was ready, and whose thread answered it."""
    return QUEUE in spans.active and spans.columns.issuperset(THREAD) and spans.single


def spans_of(
    engine: Engine,
    table: Table,
    ledger: Ledger,
    moment: IntegerValue,
    blocks: int,
    power: int,
    whole: bool = False,
) -> Spans:
    """The rows of a table, which is `whole` if it is all rows of the ledger.

    `moment` is a row's place in time (ns) among as many blocks of 2^power ns.
    """
    active, partial = strike_rows(engine, table, ledger, whole)
    return Spans(
        engine=engine,
        table=table,
        moment=moment,
        power=power,
        active=tuple(name for name in active if not is_counter(name)),
        partial=partial,
        blocks=blocks,
        columns=frozenset(engine.columns),
        rows=ledger.contents.rows,
        counters=tuple(name for name in active if is_counter(name)),
    )


def blame_columns(spans: Spans) -> list[str]:
    """The columns that name who is to blame for causes that struck."""
    return [f"{cause}_by" for cause in spans.active if f"{cause}_by" in spans.columns]
