"""Some of the spans row by row, for what group-bys can't say: how causes go together in one span.

Goal: joint distributions of any causes, at a cost in Python that does not grow with the rows.
Rejected: a group-by over the bins of all causes, for with many causes nearly each row is its own
group. Chosen: rows drawn at random in three strata of wall time, most of them from the median up,
where percentiles are decided. Up to `QUOTA` rows in a stratum all are taken and nothing is left to
chance; beyond that each row counts for those that it was drawn for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.cause import RUNNING
from tailscope.counter import COUNTERS
from tailscope.engine import filled
from tailscope.grid import Distribution, lower_edge
from tailscope.measure import Spans, column

#: Rows at most, about, from below the median, from there to the target, and from the target up.
QUOTA = (50_000, 100_000, 100_000)
#: A row is drawn if a number from 0 to this prime, made of its begin, wall time and the seed, is
#: small enough. Integers of at most 2^40, so that each engine draws the same rows.
PRIME = 1_000_003


@dataclass(frozen=True)
class Sample:
    """Rows with their weights (spans that they stand for) and causes, in order of time.

    `known` says for each cause that was not measured in all rows in which it was; values are 0
    elsewhere.
    """

    wall: NDArray[np.int64]
    weight: NDArray[np.float64]
    values: dict[str, NDArray[np.int64]]
    known: dict[str, NDArray[np.bool_]]
    #: Rows of the ledger that these were drawn from.
    rows: int
    #: Each row's block of time; nothing where only values were asked for.
    block: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def is_all(self) -> bool:
        """Whether these are all rows."""
        return len(self.wall) == self.rows

    @property
    def causes(self) -> list[str]:
        """The causes in it, `running` and counters apart."""
        return [name for name in self.values if name != RUNNING and name not in COUNTERS]

    def resting_on(self, rest_known: Sequence[str]) -> Sample:
        """With `running` known only where these causes are."""
        if not rest_known:
            return self
        rest = np.logical_and.reduce([self.known[name] for name in rest_known])
        return replace(self, known=self.known | {RUNNING: rest})

    def where_known(self, causes: Sequence[str]) -> NDArray[np.bool_]:
        """The rows in which all of some causes were measured."""
        known = np.ones(len(self.wall), dtype=bool)
        for cause in causes:
            if cause in self.known:
                known &= self.known[cause]
        return known


def sample(spans: Spans, whole: Distribution, quantile: float, seed: int) -> Sample:
    """Draw rows with all causes and counters; `whole` is the distribution of their wall times."""
    table = spans.table
    middle, target = (int(lower_edge(whole.bin_at(share))) for share in (0.5, quantile))
    stratum = (table.wall_ns >= middle).cast("int64") + (table.wall_ns >= target).cast("int64")
    counted = spans.engine.run(
        table.group_by(stratum=stratum).agg(rows=ibis._.count(), weight=ibis._.weight.sum())
    )
    rows = dict(zip(counted["stratum"].tolist(), counted["rows"].tolist(), strict=True))
    total = dict(zip(counted["stratum"].tolist(), counted["weight"].tolist(), strict=True))
    chosen = table
    if any(count > QUOTA[number] for number, count in rows.items()):
        limits = [PRIME * min(1.0, quota / rows.get(i, 1)) for i, quota in enumerate(QUOTA)]
        limit = ibis.cases(
            (table.wall_ns >= target, int(limits[2])),
            (table.wall_ns >= middle, int(limits[1])),
            else_=int(limits[0]),
        )
        chosen = table.filter(lot(table.start_ns, table.wall_ns, seed) < limit)
    names = (*spans.active, *spans.counters)
    found = spans.engine.run(
        chosen.select(
            *("start_ns", "wall_ns", "weight"),
            block=spans.block,
            **{name: table[column(name)] for name in names},
        )
    )
    # Engines return rows in any order, and sums of floats depend on it.
    order = np.lexsort([filled(found[name]) for name in (*names, "weight", "wall_ns", "start_ns")])
    wall = filled(found["wall_ns"])[order].astype(np.int64)
    values = {name: filled(found[name])[order].astype(np.int64) for name in names}
    known = {
        name: ~np.ma.getmaskarray(found[name])[order]
        for name in names
        if name in spans.partial or name in spans.counters
    }
    rest = wall - sum((values[name] for name in spans.active), np.zeros_like(wall))
    return Sample(
        wall=wall,
        weight=weighed(wall, filled(found["weight"])[order], (middle, target), total),
        values=values | {RUNNING: np.maximum(rest, 0)},
        known=known,
        rows=sum(rows.values()),
        block=filled(found["block"])[order].astype(np.int64),
    )


def lot(start: ibis.Value, wall: ibis.Value, seed: int) -> ibis.Value:
    """A row's number in the draw, from 0 to `PRIME`."""
    mixed = (start % PRIME) * 7_919 + (wall % 999_983) * 104_729 + (seed % PRIME) * 15_485_863
    return mixed % PRIME


def weighed(
    wall: NDArray[np.int64],
    weight: NDArray[np.float64],
    edges: tuple[int, int],
    total: dict[int, float],
) -> NDArray[np.float64]:
    """The weights, such that each stratum's add up to what all of its rows weigh."""
    stratum = np.searchsorted(edges, wall, side="right")
    drawn = np.bincount(stratum, weight, len(edges) + 1)
    factor = np.array(
        [total.get(i, 0.0) / sum_ if sum_ > 0 else 0.0 for i, sum_ in enumerate(drawn)]
    )
    return weight * factor[stratum]
