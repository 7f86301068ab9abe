"""What a percentile is made of: each cause's mean over the spans around it.

For a sum of parts, the parts' means over the spans at a percentile add up to the percentile (its
Euler allocation, known from risk as contributions to value at risk). "At" is a band of spans: for
p99 those from p98.5 to p99.5, half of what is beyond the percentile to either side, and never more
than 5 % of all: p45 to p55 for the median. So the contributions add up to the band's mean, which is
near the percentile and not the same.

In a resampled recording the percentile lies elsewhere, and its band with it. So the spans are cut
into narrow classes around the percentile, and each replicate takes the classes that are its band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.engines import measure
from tailscope.engines.grid import lower_edge
from tailscope.engines.spans import Spans
from tailscope.engines.timed import Timed
from tailscope.ledger.causes import RUNNING
from tailscope.statistics import bootstrap
from tailscope.statistics.bootstrap import Draws

if TYPE_CHECKING:
    from tailscope.engines.penalty import Penalty

Sums = NDArray[np.float64]

#: The band to either side: this part of what is beyond the percentile, and of all spans at most.
BAND, WIDEST = 0.5, 0.05
#: The classes where the band depends on what is beyond: eight to each doubling of that, three
#: doublings to either side.
CLASSES = 2.0 ** (np.arange(24, -25, -1) / 8)
#: Elsewhere classes are equally wide, so many to half a band.
FINE = 6


@dataclass(frozen=True)
class Side:
    """One of two sets of spans that are compared, with its own draws."""

    spans: Spans
    walls: Timed
    draws: Draws
    rows: int
    seconds: float
    #: Causes that were not measured here at all.
    unknown: frozenset[str]
    #: Running that is put down to causes.
    penalties: tuple[Penalty, ...] = ()

    @classmethod
    def of(
        cls, spans: Spans, rows: int, seconds: float, unknown: frozenset[str], q: float, seed: int
    ) -> Side:
        """Count the spans' wall times, and draw blocks as long as the tail's memory at `q`."""
        walls = Timed.of(measure.walls(spans), spans.blocks)
        tail_bin = walls.distribution().bin_at(q)
        memory = bootstrap.memory(bootstrap.surplus(walls, tail_bin))
        draws = bootstrap.draw(spans.blocks, memory, seed)
        return cls(spans, walls, draws, rows, seconds, unknown)

    @property
    def weight(self) -> float:
        """How many spans the rows stand for."""
        return float(self.walls.weight.sum())


@dataclass(frozen=True)
class Contributions:
    """Means (ns) in the band around a percentile, and the same of each replicate."""

    wall_ns: float
    wall_draws: NDArray[np.float64]
    causes_ns: dict[str, float]
    causes_draws: dict[str, NDArray[np.float64]]


def contributions(side: Side, quantile: float) -> Contributions:
    """What the percentile of one side is made of, `running` included."""
    whole = side.walls.distribution()
    bins = sorted({whole.bin_at(1 - share) for share in beyond(quantile)})
    edges = [int(edge) for edge in lower_edge(np.array(bins))]
    spans = side.spans
    near = replace(spans, table=spans.table.filter(spans.table.wall_ns >= edges[0]))
    usual = [cause for cause in spans.active if not spans.nullable((cause,))]
    sums = measure.class_sums(near, edges, usual, side.penalties)
    weight, wall = sums.pop("weight"), sums.pop("wall")
    for one in side.penalties:
        sums[one.cause] = sums[one.cause] + sums.pop(f"penalty_{one.cause}")
    for cause in set(spans.active) - set(usual):
        sums[cause] = for_all(cause, near, edges, weight)
    total = side.walls.weight.sum(axis=1)
    once = np.ones((1, spans.blocks))
    estimate = means(once, (wall, *sums.values()), weight, total, quantile)
    drawn = means(side.draws.counts, (wall, *sums.values()), weight, total, quantile)
    causes_ns = {cause: float(ns[0]) for cause, ns in zip(sums, estimate[1:], strict=True)}
    causes_draws = dict(zip(sums, drawn[1:], strict=True))
    causes_ns[RUNNING] = max(float(estimate[0][0]) - sum(causes_ns.values()), 0.0)
    rest = drawn[0] - sum(causes_draws.values(), np.zeros_like(drawn[0]))
    causes_draws[RUNNING] = np.maximum(rest, 0.0)
    return Contributions(float(estimate[0][0]), drawn[0], causes_ns, causes_draws)


def half_width(quantile: float) -> float:
    """How far the band around a percentile reaches to either side, as a part of all spans."""
    return min(BAND * quantile, BAND * (1 - quantile), WIDEST)


def beyond(quantile: float) -> NDArray[np.float64]:
    """Where classes begin: the parts of the spans beyond."""
    if BAND * (1 - quantile) <= WIDEST:
        return np.minimum((1 - quantile) * CLASSES, 1.0)
    if BAND * quantile <= WIDEST:
        return 1 - np.minimum(quantile * CLASSES, 1.0)
    return np.arange(0, 1, WIDEST / FINE)


def for_all(cause: str, near: Spans, edges: Sequence[int], weight: Sums) -> Sums:
    """The sums of a cause that some rows lack, as if they had as much as the others of a class."""
    known = measure.class_sums(near.knowing((cause,)), edges, (cause,))
    measured, everyone = known["weight"].sum(axis=0), weight.sum(axis=0)
    factor = np.divide(everyone, measured, out=np.zeros_like(everyone), where=measured > 0)
    return known[cause] * factor


def means(
    counts: Sums, sums: Sequence[Sums], weight: Sums, total: NDArray[np.float64], quantile: float
) -> list[NDArray[np.float64]]:
    """Means in the band of each replicate (a row of `counts`): of each of the sums."""
    held = counts @ weight
    everything = np.maximum(counts @ total, 1e-300)[:, None]
    upto = np.cumsum(held[:, ::-1], axis=1)[:, ::-1] / everything
    share = held / everything
    half = half_width(quantile)
    low, high = 1 - quantile - half, 1 - quantile + half
    inside = np.minimum(upto, high) - np.maximum(upto - share, low)
    part = np.divide(np.maximum(inside, 0.0), share, out=np.zeros_like(share), where=share > 0)
    spans = (part * held).sum(axis=1)
    return [
        np.divide(
            (part * (counts @ one)).sum(axis=1), spans, out=np.zeros_like(spans), where=spans > 0
        )
        for one in sums
    ]
