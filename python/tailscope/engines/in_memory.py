"""The questions of `measure`, asked of rows in memory.

To translate a question for the engine takes some 30 ms, whatever the rows. Where they are few it is
quicker to load them once: small ledgers as wholes, and the tails of larger ones. The answers are
the engine's, which the tests hold: no function may mean another thing than its namesake there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.timed import Counts

if TYPE_CHECKING:
    from tailscope.engines.penalty import Penalty
    from tailscope.engines.sample import Sample


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
    penalties: Sequence[Penalty] = (),
) -> dict[str, NDArray[np.float64]]:
    """Weighted sums by time block and class."""
    classes = len(edges_ns) + 1
    cell = rows.block * classes + np.searchsorted(edges_ns, rows.wall, side="right")
    ones = np.ones(len(rows.wall), dtype=np.int64)
    values = {"weight": ones, "wall": rows.wall} | {name: rows.values[name] for name in causes}
    values |= {f"penalty_{one.cause}": one.gain_in(rows) for one in penalties}
    return {
        name: np.bincount(cell, rows.weight * each, blocks * classes).reshape(blocks, classes)
        for name, each in values.items()
    }
