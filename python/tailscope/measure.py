"""The O(rows) work: one plain group-by a question, over the ledger's rows, in the engine (DESIGN
§5).

Only filter, group-by, sum, count, min, max, order-by with a limit, and integer arithmetic are used
here, so each expression means the same on every engine. All results are weighted: a row stands for
`weight` spans. Times are whole nanoseconds; bins are those of `grid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope import here
from tailscope.cause import QUEUE, RUNNING
from tailscope.counter import is_counter
from tailscope.engine import Engine, filled
from tailscope.grid import Distribution, bin_of, lower_edge
from tailscope.ledger import IDENTITY, Ledger
from tailscope.overview import Overview, Total
from tailscope.timed import Counts

if TYPE_CHECKING:
    from ibis.expr.types import FloatingScalar, IntegerValue, Table

    from tailscope.replay import Queued
    from tailscope.sample import Sample

#: The columns that say whose thread a row is of.
THREAD = ("ledger", "pid", "tid")
#: Equal-time pieces of the recording at most; the bootstrap resamples them, the report draws them.
BLOCKS = 256


@dataclass(frozen=True)
class Strikes:
    """How often and how hard a cause strikes; spans without it are in bin 0 of `values`."""

    values: Distribution
    spans: float
    events: float | None


@dataclass(frozen=True)
class Worst:
    """One of the slowest spans, whole."""

    start_ns: int
    wall_ns: int
    identity: dict[str, int]
    causes: dict[str, int]
    #: Who is to blame for the causes of which that is known.
    culprits: dict[str, str]


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
    #: Whether each row stands for one span: then no question reads the weights.
    single: bool = False
    #: Whether all requests are there, from when their data was ready: they can be replayed.
    replayable: bool = False
    #: Those that waited for each other, to be replayed; None where nobody asked for it, or can't.
    queued: Queued | None = None
    #: All of their rows, where these are few: then no question goes to the engine.
    here: Sample | None = None
    #: Of very many rows those that are looked at one by one, in a table of their own (`near`).
    near: Spans | None = None
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
            here=self.here and self.here.where(self.here.where_known(missing)),
            near=None,
            tail=self.tail and replace(self.tail.knowing(causes), queued=queued),
        )


def column(cause: str) -> str:
    """The ledger's column of a cause's time or of a counter."""
    return cause if is_counter(cause) else f"{cause}_ns"


def walls_by_segment(
    spans: Spans, first_ns: int, length_ns: int
) -> dict[int, tuple[int, Distribution]]:
    """Rows and wall times of each piece of time of a length, by the piece's begin (Unix ns).

    Pieces without any span are missing.
    """
    table = spans.table
    since = table.start_ns - first_ns
    begin = since - since % length_ns
    found = spans.engine.run(
        table.group_by(begin=begin, bin=bin_of(table.wall_ns)).agg(
            rows=ibis._.count(), weight=spans.weight()
        )
    )
    pieces = {}
    for begin in np.unique(found["begin"]).tolist():
        mine = found["begin"] == begin
        walls = Distribution.of(found["bin"][mine], found["weight"][mine])
        pieces[first_ns + begin] = int(found["rows"][mine].sum()), walls
    return pieces


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
    if not alone:
        table = table.filter(table.span == name)
    places, power, blocks = time_blocks(totals)
    moment = None
    for place in reversed(places):
        its = table.start_ns - (place.first_ns - (place.start << power))
        moment = its if moment is None else ibis.ifelse(table.ledger == place.ledger, its, moment)
    whole = alone and not overview.left_out
    spans = spans_of(engine, table, ledger, moment, blocks, power, whole)
    spans = replace(spans, single=all(total.single == total.rows for total in totals))
    return replace(spans, replayable=knows_queue(spans))


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
        counters=tuple(name for name in active if is_counter(name)),
    )


def walls(spans: Spans) -> Counts:
    """Wall time by block and bin."""
    if spans.here:
        return here.walls(spans.here)
    grouped = spans.table.group_by(block=spans.block, bin=bin_of(spans.table.wall_ns))
    found = spans.engine.run(grouped.agg(weight=spans.weight()))
    return Counts(found["block"], found["bin"], found["weight"])


def with_tail(spans: Spans, floor_bin: int) -> Spans:
    """The spans with those at and above a bin of wall time kept apart."""
    table = (spans.near or spans).table
    slow = table.filter(table.wall_ns >= int(lower_edge(floor_bin)))
    if spans.near:
        tail = replace(spans.near, table=slow, moment=slow.moment, queued=spans.queued)
        return replace(spans, tail=replace(tail, floor_bin=floor_bin))
    if spans.here:
        rows = spans.here.where(spans.here.wall >= int(lower_edge(floor_bin)))
        return replace(spans, tail=replace(spans, table=slow, here=rows, floor_bin=floor_bin))
    causes = [column(name) for name in (*spans.active, *spans.counters)]
    causes += culprit_columns(spans)
    kept = spans.engine.keep(slow.select("wall_ns", "weight", *causes, moment=spans.moment))
    return replace(spans, tail=replace(spans, table=kept, moment=kept.moment, floor_bin=floor_bin))


def culprit_columns(spans: Spans) -> list[str]:
    """The columns that name who is to blame for causes that struck."""
    return [f"{cause}_by" for cause in spans.active if f"{cause}_by" in spans.columns]


def strikes(spans: Spans, cause: str, total: float) -> Strikes:
    """The cause's own distribution; spans that don't have it are in bin 0."""
    if spans.here:
        bins, weights, events = here.strikes(spans.here, cause)
        return Strikes(with_zero(bins, weights, total), float(weights.sum()), events)
    value = spans.value(cause)
    sums = {"weight": spans.weight()}
    counted = f"{cause}_n" in spans.columns
    if counted:
        sums["events"] = spans.weigh(ibis._[f"{cause}_n"].fill_null(0))
    table = spans.table.filter(value > 0)
    found = spans.engine.run(table.group_by(bin=bin_of(value)).agg(**sums))
    return Strikes(
        values=with_zero(found["bin"], found["weight"], total),
        spans=float(found["weight"].sum()),
        events=float(found["events"].sum()) if counted else None,
    )


def known_rows(spans: Spans, causes: Sequence[str]) -> list[int]:
    """In how many rows the first, the first two, … of some causes were measured."""
    if spans.here:
        rows = spans.here
        return [int(rows.where_known(causes[: n + 1]).sum()) for n in range(len(causes))]
    sums = {}
    known = ibis.literal(True)
    for number, cause in enumerate(causes):
        known = known & spans.table[column(cause)].notnull()
        sums[f"known_{number}"] = known.cast("int64").sum()
    found = spans.engine.run(spans.table.agg(**sums))
    return [int(filled(found[name])[0]) for name in sums]


def with_zero(bins: NDArray, weights: NDArray, total: float) -> Distribution:
    """A cause's distribution over all spans, from those that have it."""
    rest = max(total - float(weights.sum()), 0.0)
    return Distribution.of(np.append(bins, 0), np.append(weights, rest))


def walls_from(spans: Spans, cause: str, high_ns: int) -> Distribution:
    """The wall times of the spans with at least so much of a cause."""
    if spans.here:
        return here.walls_from(spans.here, cause, high_ns)
    table = spans.table.filter(spans.value(cause) >= high_ns)
    found = spans.engine.run(table.group_by(bin=bin_of(table.wall_ns)).agg(weight=spans.weight()))
    return Distribution.of(found["bin"], found["weight"])


def class_sums(
    spans: Spans, edges_ns: Sequence[int], causes: Sequence[str]
) -> dict[str, NDArray[np.float64]]:
    """Weighted sums of `wall` and of some causes (ns), and `weight`, by time block and class.

    Class i is the i-th interval between the edges. The arrays are blocks by classes.
    """
    if spans.here:
        return here.class_sums(spans.here, spans.blocks, edges_ns, causes)
    table = spans.table
    number = ibis.literal(0, "int64")
    for edge in edges_ns:
        number = number + (table.wall_ns >= edge).cast("int64")
    sums = {"weight": spans.weight(), "wall": spans.weigh(table.wall_ns)}
    sums |= {cause: spans.weigh(spans.value(cause)) for cause in causes}
    found = spans.engine.run(table.group_by(block=spans.block, number=number).agg(**sums))
    dense = {}
    for name in sums:
        dense[name] = np.zeros((spans.blocks, len(edges_ns) + 1))
        dense[name][found["block"], found["number"]] = found[name]
    return dense


def worst(spans: Spans, floor_ns: int, limit: int) -> tuple[Worst, ...]:
    """The slowest spans, slowest first; none is faster than `floor_ns`."""
    table = spans.table
    identity = [name for name in IDENTITY if name in spans.columns]
    causes = [f"{cause}_ns" for cause in spans.active]
    found = spans.engine.run(
        table.filter(table.wall_ns >= floor_ns)
        .order_by(table.wall_ns.desc(), table.start_ns)
        .limit(limit)
        .select("start_ns", "wall_ns", *identity, *causes, *culprit_columns(spans))
    )
    rows = []
    for i in range(len(found["wall_ns"])):
        ns = {cause: int(filled(found[f"{cause}_ns"])[i]) for cause in spans.active}
        wall = int(found["wall_ns"][i])
        rows.append(
            Worst(
                start_ns=int(found["start_ns"][i]),
                wall_ns=wall,
                identity={
                    name: int(found[name][i])
                    for name in identity
                    if not np.ma.getmaskarray(found[name])[i]
                },
                causes=ns | {RUNNING: max(wall - sum(ns.values()), 0)},
                culprits={
                    name.removesuffix("_by"): str(found[name][i])
                    for name in culprit_columns(spans)
                    if not np.ma.getmaskarray(found[name])[i]
                },
            )
        )
    return tuple(rows)
