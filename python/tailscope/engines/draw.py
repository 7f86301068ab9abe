"""Rows drawn at random, for what group-bys can't say: how causes go together in one span.

Goal: joint distributions of any causes, at a cost in Python that does not grow with the rows.
Rejected: a group-by over the bins of all causes, for with many causes nearly each row is its own
group. Chosen: rows drawn at random in three strata of wall time, most of them from the median up,
where percentiles are decided. Up to `QUOTA` rows in a stratum all are taken and nothing is left to
chance; beyond that each row counts for those that it was drawn for. All strata together have about
250,000 rows at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines.engine import filled
from tailscope.engines.grid import Distribution, lower_edge
from tailscope.engines.sample import Sample
from tailscope.engines.spans import Spans, column, dosed
from tailscope.errors import LedgerError
from tailscope.ledger.causes import RUNNING

if TYPE_CHECKING:
    from ibis.expr.types import BooleanValue, Table

#: Rows at most, about, from below the median, from there to the target, and from the target up.
QUOTA = (50_000, 100_000, 100_000)
#: Ledgers of up to so many rows are held in memory, and drawn as wholes where `QUOTA` allows it.
IN_MEMORY = 100_000
#: Rows that a draw brings at most: twice what is wanted, which no chance exceeds.
MOST = 2 * sum(QUOTA)
#: A row is drawn if a number from 0 to this prime, made of its begin, wall time and the seed, is
#: small enough. Integers of at most 2^40, so that each engine draws the same rows.
PRIME = 1_000_003


@dataclass(frozen=True)
class Lots:
    """Which rows are drawn: in each stratum those whose lot is below its limit."""

    #: The wall times (ns) with which the upper strata begin.
    edges: tuple[int, int]
    #: Rows, and spans that they stand for, by stratum.
    rows: NDArray[np.int64]
    weight: NDArray[np.float64]
    seed: int

    @property
    def all(self) -> bool:
        """Whether every row is drawn."""
        return bool((self.rows <= QUOTA).all())

    def has(self, table: Table) -> BooleanValue:
        """Whether a row is drawn."""
        if self.all:
            return ibis.literal(True)
        shares = np.minimum(1.0, np.array(QUOTA) / np.maximum(self.rows, 1))
        lowest, middle, highest = (int(PRIME * share) for share in shares)
        limit = ibis.cases(
            (table.wall_ns >= self.edges[1], highest),
            (table.wall_ns >= self.edges[0], middle),
            else_=lowest,
        )
        return lot(table.start_ns, table.wall_ns, self.seed) < limit

    def check(self, drawn: Sample) -> None:
        """Refuse rows that are so much alike that a draw takes all of them or none."""
        stratum = np.searchsorted(self.edges, drawn.wall, side="right")
        found = np.bincount(stratum, minlength=len(self.rows))
        if not self.all and (len(drawn.wall) > MOST or (found[self.rows > 0] == 0).any()):
            raise LedgerError(
                "can't sample the rows: too many start at the same time and take equally long; "
                "no recorder wrote this ledger"
            )


def draw(spans: Spans, whole: Distribution, quantile: float, seed: int) -> Lots:
    """Draw rows; `whole` is the distribution of their wall times."""
    table = spans.table
    bins = [whole.bin_at(share) for share in (0.5, quantile)]
    edges = int(lower_edge(bins[0])), int(lower_edge(bins[1]))
    weight = np.bincount(np.searchsorted(bins, whole.bins, side="right"), whole.weights, 3)
    if spans.single:
        return Lots(edges, weight.astype(np.int64), weight, seed)
    stratum = sum(((table.wall_ns >= edge).cast("int64") for edge in edges), ibis.literal(0))
    counted = spans.engine.run(table.group_by(stratum=stratum).agg(rows=ibis._.count()))
    rows = np.zeros(3, dtype=np.int64)
    rows[counted["stratum"]] = counted["rows"]
    return Lots(edges, rows, weight, seed)


def sample(spans: Spans, whole: Distribution, quantile: float, seed: int) -> Sample:
    """Draw rows with all causes and counters; `whole` is the distribution of their wall times."""
    lots = draw(spans, whole, quantile, seed)
    if spans.in_memory and lots.all:
        return spans.in_memory
    rows = spans if lots.all else spans.subset or spans
    chosen = rows.table.filter(lots.has(rows.table))
    drawn = fetched(rows, chosen if lots.all else chosen.limit(MOST + 1))
    lots.check(drawn)
    weight = weighed(drawn.wall, drawn.weight, lots)
    return replace(drawn, weight=weight, rows=int(lots.rows.sum()))


def fetched(spans: Spans, chosen: Table, *, events: bool = False) -> Sample:
    """Some of the rows as they are, in order of time; with the number of each cause's events,
    or of those alone whose events are asked row by row."""
    names = (*spans.active, *spans.counters)
    wanted = spans.active if events else dosed(spans)
    counted = [name for name in wanted if f"{name}_n" in chosen.columns]
    found = spans.engine.run(
        chosen.select(
            *("wall_ns", "weight"),
            moment=spans.moment,
            woke_idle=spans.woke_idle.cast("int64"),
            **{name: spans.table[column(name)] for name in names},
            **{f"{name}_n": spans.table[f"{name}_n"] for name in counted},
        )
    )
    # Engines return rows in any order, and sums of floats depend on it.
    order = np.lexsort([filled(found[name]) for name in (*names, "weight", "wall_ns", "moment")])

    def whole(name: str) -> NDArray[np.int64]:
        return filled(found[name])[order].astype(np.int64)

    values = {name: whole(name) for name in names}
    rest = whole("wall_ns") - sum((values[name] for name in spans.active), np.int64(0))
    return Sample(
        wall=whole("wall_ns"),
        weight=filled(found["weight"])[order],
        values=values | {RUNNING: np.maximum(rest, 0)},
        known={
            name: ~np.ma.getmaskarray(found[name])[order]
            for name in names
            if name in spans.partial or name in spans.counters
        },
        rows=len(order),
        block=whole("moment") >> spans.power,
        events={name: whole(f"{name}_n") for name in counted},
        woke_idle=whole("woke_idle").astype(bool),
    )


def load_if_few(spans: Spans, rows: int) -> Spans:
    """The spans of a ledger of so many rows; if they are few, with all of them in memory."""
    if rows > IN_MEMORY:
        return spans
    return replace(spans, in_memory=fetched(spans, spans.table, events=True))


def lot(start: ibis.Value, wall: ibis.Value, seed: int) -> ibis.Value:
    """A row's number in the draw, from 0 to `PRIME`."""
    mixed = (start % PRIME) * 7_919 + (wall % 999_983) * 104_729 + (seed % PRIME) * 15_485_863
    return mixed % PRIME


def weighed(
    wall: NDArray[np.int64], weight: NDArray[np.float64], lots: Lots
) -> NDArray[np.float64]:
    """The weights, such that each stratum's add up to what all of its rows weigh."""
    stratum = np.searchsorted(lots.edges, wall, side="right")
    drawn = np.bincount(stratum, weight, len(lots.weight))
    factor = np.divide(lots.weight, drawn, out=np.zeros_like(drawn), where=drawn > 0)
    return weight * factor[stratum]
