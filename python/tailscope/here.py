"""The questions of `measure` and `fix`, asked of rows that are here.

To translate a question for the engine takes some 30 ms, whatever the rows. Where they are few it is
quicker to have them here, once: small ledgers as wholes, and the tails of larger ones. The answers
are the engine's, which the tests hold: nothing here may mean another thing than its namesake there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.grid import Distribution, bins_of
from tailscope.timed import Counts

if TYPE_CHECKING:
    from tailscope.fix import Fix
    from tailscope.outside import Left
    from tailscope.sample import Sample


def walls(rows: Sample) -> Counts:
    """Wall time by block and bin."""
    return Counts(rows.block, bins_of(rows.wall), rows.weight)


def strikes(rows: Sample, cause: str) -> tuple[NDArray, NDArray, float | None]:
    """The values and weights of the spans that have a cause, and how many events it had."""
    values = rows.values[cause]
    struck = values > 0
    weight = rows.weight[struck]
    events = rows.events.get(cause)
    count = float((weight * events[struck]).sum()) if events is not None else None
    return values[struck], weight, count


def walls_from(rows: Sample, cause: str, high: int) -> Distribution:
    """The wall times of the spans with at least so much of a cause."""
    chosen = rows.values[cause] >= high
    return Distribution.of(bins_of(rows.wall[chosen]), rows.weight[chosen])


def class_sums(
    rows: Sample,
    blocks: int,
    edges_ns: Sequence[int],
    causes: Sequence[str],
    lefts: Sequence[Left] = (),
) -> dict[str, NDArray[np.float64]]:
    """Weighted sums by time block and class."""
    classes = len(edges_ns) + 1
    cell = rows.block * classes + np.searchsorted(edges_ns, rows.wall, side="right")
    ones = np.ones(len(rows.wall), dtype=np.int64)
    values = {"weight": ones, "wall": rows.wall} | {name: rows.values[name] for name in causes}
    values |= {f"left_{one.cause}": one.gain_in(rows) for one in lefts}
    return {
        name: np.bincount(cell, rows.weight * each, blocks * classes).reshape(blocks, classes)
        for name, each in values.items()
    }


def excess(rows: Sample, fix: Fix) -> tuple[Counts, Counts]:
    """The spans with more of some causes than their limits, by wall time with and without it."""
    over = np.logical_or.reduce([rows.values[cause] > most for cause, most in fix.limits.items()])
    rows = rows.where(over)
    without = rows.wall - sum(fix.more_in(rows).values(), np.zeros_like(rows.wall))
    return walls(rows), Counts(rows.block, bins_of(without), rows.weight)
