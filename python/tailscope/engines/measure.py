"""The O(rows) work: one plain group-by a question, over the ledger's rows, in the engine (DESIGN
§5).

Only filter, group-by, sum, count, min, max, order-by with a limit, and integer arithmetic are used
here, so each expression means the same on every engine. All results are weighted: a row stands for
`weight` spans. Times are whole nanoseconds; bins are those of `grid`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines import in_memory
from tailscope.engines.engine import filled
from tailscope.engines.grid import Distribution, bin_of
from tailscope.engines.spans import Spans, blame_columns, column
from tailscope.engines.timed import Counts
from tailscope.engines.value_counts import EXACT_ROWS, Ranked, shortened
from tailscope.ledger.causes import RUNNING
from tailscope.ledger.ledger import IDENTITY, TRACE

if TYPE_CHECKING:
    from tailscope.engines.penalty import Penalty


@dataclass(frozen=True)
class Strikes:
    """How often and how hard a cause strikes; spans without it have the value 0."""

    ranked: Ranked
    spans: float
    events: float | None

    @cached_property
    def values(self) -> Distribution:
        """Its values on the grid."""
        return self.ranked.binned()


@dataclass(frozen=True)
class Worst:
    """One of the slowest spans, whole."""

    start_ns: int
    wall_ns: int
    identity: dict[str, int]
    causes: dict[str, int]
    #: Who is to blame for the causes of which that is known.
    culprits: dict[str, str]
    #: The trace that it belongs to (W3C Trace Context), as 32 hexadecimal digits, and the id of the
    #: span that sent it, as 16; None where it did not say.
    trace_id: str | None = None
    parent_id: str | None = None


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


def walls(spans: Spans) -> Counts:
    """Wall time by block and bin."""
    if spans.in_memory:
        return in_memory.walls(spans.in_memory)
    grouped = spans.table.group_by(block=spans.block, bin=bin_of(spans.table.wall_ns))
    found = spans.engine.run(grouped.agg(weight=spans.weight()))
    return Counts(found["block"], found["bin"], found["weight"])


def strikes(spans: Spans, cause: str, total: float) -> Strikes:
    """The cause's own distribution; spans that don't have it are in bin 0."""
    if spans.in_memory:
        values, weights, events = in_memory.strikes(spans.in_memory, cause)
        return Strikes(with_zero(values, weights, total), float(weights.sum()), events)
    value = spans.value(cause)
    kept = value if spans.rows <= EXACT_ROWS else shortened(value)
    sums = {"weight": spans.weight()}
    counted = f"{cause}_n" in spans.columns
    if counted:
        sums["events"] = spans.weigh(ibis._[f"{cause}_n"].fill_null(0))
    table = spans.table.filter(value > 0)
    found = spans.engine.run(table.group_by(value=kept).agg(**sums))
    return Strikes(
        ranked=with_zero(found["value"], found["weight"], total),
        spans=float(found["weight"].sum()),
        events=float(found["events"].sum()) if counted else None,
    )


def known_rows(spans: Spans, causes: Sequence[str]) -> list[int]:
    """In how many rows the first, the first two, … of some causes were measured."""
    if spans.in_memory:
        rows = spans.in_memory
        return [int(rows.where_known(causes[: n + 1]).sum()) for n in range(len(causes))]
    sums = {}
    known = ibis.literal(True)
    for number, cause in enumerate(causes):
        known = known & spans.table[column(cause)].notnull()
        sums[f"known_{number}"] = known.cast("int64").sum()
    found = spans.engine.run(spans.table.agg(**sums))
    return [int(filled(found[name])[0]) for name in sums]


def with_zero(values: NDArray, weights: NDArray, total: float) -> Ranked:
    """A cause's values over all spans, from those that have it."""
    rest = max(total - float(weights.sum()), 0.0)
    return Ranked.of(np.append(values, 0), np.append(weights, rest))


def walls_from(spans: Spans, cause: str, high_ns: int) -> Distribution:
    """The wall times of the spans with at least so much of a cause."""
    if spans.in_memory:
        return in_memory.walls_from(spans.in_memory, cause, high_ns)
    table = spans.table.filter(spans.value(cause) >= high_ns)
    found = spans.engine.run(table.group_by(bin=bin_of(table.wall_ns)).agg(weight=spans.weight()))
    return Distribution.of(found["bin"], found["weight"])


def class_sums(
    spans: Spans, edges_ns: Sequence[int], causes: Sequence[str], penalties: Sequence[Penalty] = ()
) -> dict[str, NDArray[np.float64]]:
    """Weighted sums of `wall` and of some causes (ns), and `weight`, by time block and class.

    Class i is the i-th interval between the edges. The arrays are blocks by classes. The penalty
    of a cause is summed under `penalty_<cause>`.
    """
    if spans.in_memory:
        return in_memory.class_sums(spans.in_memory, spans.blocks, edges_ns, causes, penalties)
    table = spans.table
    number = ibis.literal(0, "int64")
    for edge in edges_ns:
        number = number + (table.wall_ns >= edge).cast("int64")
    sums = {"weight": spans.weight(), "wall": spans.weigh(table.wall_ns)}
    sums |= {cause: spans.weigh(spans.value(cause)) for cause in causes}
    sums |= {f"penalty_{one.cause}": spans.weigh(one.gain(spans)) for one in penalties}
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
    trace = TRACE if spans.columns.issuperset(TRACE) else ()
    found = spans.engine.run(
        table.filter(table.wall_ns >= floor_ns)
        .order_by(table.wall_ns.desc(), table.start_ns)
        .limit(limit)
        .select("start_ns", "wall_ns", *identity, *trace, *causes, *blame_columns(spans))
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
                    for name in blame_columns(spans)
                    if not np.ma.getmaskarray(found[name])[i]
                },
                **(traced(*(found[name][i : i + 1] for name in trace)) if trace else {}),
            )
        )
    return tuple(rows)


def traced(high: NDArray, low: NDArray, parent: NDArray) -> dict[str, str]:
    """The ids of one row's trace, if it has one."""
    parts = (high, low, parent)
    if any(np.ma.getmaskarray(part)[0] for part in parts):
        return {}
    digits = [f"{int(part[0]) % (1 << 64):016x}" for part in parts]
    return {"trace_id": digits[0] + digits[1], "parent_id": digits[2]}
