"""Slow spans beside usual ones: how many there are, and the exact mean of each cause in both.

Slow spans are those at or above the target, usual ones those between the quartiles. The means come
from the rows, so they are exact for this recording. Their replicates resample its blocks of time,
as those of the target do. Times are ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailscope.engines import measure
from tailscope.engines.grid import lower_edge
from tailscope.engines.spans import Spans
from tailscope.ledger.causes import RUNNING
from tailscope.statistics.counterfactual import Baseline

#: Usual spans are those between these quantiles.
USUAL = (0.25, 0.75)
#: No span takes longer, in ns.
LONGEST = (1 << 63) - 1


@dataclass(frozen=True)
class Mean:
    """A cause's mean time in some spans, and that of each replicate."""

    ns: float
    draws: NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """Some spans: their wall times (both included), their number (weighted), and their causes."""

    from_ns: int
    to_ns: int
    spans: float
    causes: dict[str, Mean]


def apart(spans: Spans, baseline: Baseline) -> tuple[Group, Group]:
    """The slow spans and the usual ones. Causes that some rows lack are left out."""
    walls = baseline.whole
    low, high = (walls.bin_at(quantile) for quantile in USUAL)
    floor = max(walls.bin_at(baseline.quantile), high + 1)
    edges = [int(edge) for edge in lower_edge(np.array([low, high + 1, floor]))]
    groups = grouped(spans, edges, baseline.draws.counts)
    return groups(3, edges[2], LONGEST), groups(1, edges[0], edges[1] - 1)


def grouped(
    spans: Spans, edges: list[int], counts: NDArray[np.float64]
) -> Callable[[int, int, int], Group]:
    """Spans in classes: those between two edges (ns), below the first, and from the last on.

    The result makes a group of the class with a number and those wall times. `counts`: how often
    each replicate (row) holds each block of time.
    """
    causes = [cause for cause in spans.active if not spans.nullable((cause,))]
    sums = measure.class_sums(spans, edges, causes)
    weight, wall = sums.pop("weight"), sums.pop("wall")
    if len(causes) == len(spans.active):
        sums[RUNNING] = np.maximum(wall - sum(sums.values(), np.zeros_like(wall)), 0.0)

    def group(number: int, from_ns: int, to_ns: int) -> Group:
        total = float(weight[:, number].sum())
        drawn = np.maximum(counts @ weight[:, number], 1e-9)
        means = {
            cause: Mean(
                float(each[:, number].sum()) / max(total, 1e-9), (counts @ each[:, number]) / drawn
            )
            for cause, each in sums.items()
        }
        return Group(from_ns, to_ns, total, means)

    return group
