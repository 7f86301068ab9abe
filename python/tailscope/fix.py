"""Spans with some causes brought down to a limit: which of them become faster, and how fast.

Plain group-bys like those of `measure`, and the windows of `replay` for the queue that a fix takes
along.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ibis
import numpy as np

from tailscope.grid import Distribution, bin_of
from tailscope.measure import Spans
from tailscope.replay import applies, replayed
from tailscope.timed import Counts

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue, Table


@dataclass(frozen=True)
class Moved:
    """Spans that a fix makes faster: `gone` from one wall time, `come` to another."""

    gone: Counts
    come: Counts


def moved(spans: Spans, limits: dict[str, int], busy_ns: int = 0) -> Moved:
    """The spans in which a cause in `limits` is above its limit (ns), with and without the excess.

    Of those that can be replayed the ones of at least `busy_ns` come with the queue gone that they
    were in. Spans that fall below the table's floor come to the bin beneath it.
    """
    rows, without = excess(spans, limits)

    def counts(rows: Table, block: IntegerValue, wall: IntegerValue) -> Counts:
        found = spans.engine.run(
            rows.group_by(block=block, bin=bin_of(wall)).agg(weight=ibis._.weight.sum())
        )
        bins = np.maximum(found["bin"], spans.floor_bin - 1)
        return Counts(found["block"], bins, found["weight"])

    gone = counts(rows, spans.block, spans.table.wall_ns)
    come = counts(rows, spans.block, without)
    if spans.replayable and applies(limits):
        queued = replayed(spans, limits, busy_ns)
        gone = gone.plus(counts(queued, queued.block, queued.plain))
        come = come.plus(counts(queued, queued.block, queued.replay))
    return Moved(gone, come)


def excess(spans: Spans, limits: dict[str, int]) -> tuple[Table, IntegerValue]:
    """The spans with more than the limits (ns) of some causes, and their wall time without it."""
    over = {cause: spans.value(cause) - limit for cause, limit in limits.items()}
    wall = spans.table.wall_ns
    for more in over.values():
        wall = wall - ibis.greatest(more, 0)
    return spans.table.filter(ibis.or_(*(more > 0 for more in over.values()))), wall


def relieved(
    spans: Spans, whole: Distribution, limits: dict[str, int], busy_ns: int = 0
) -> Distribution:
    """The wall times (`whole`), had no cause in `limits` been above its limit (ns)."""
    fixed = moved(replace(spans, floor_bin=0), limits, busy_ns)
    for counts, sign in ((fixed.gone, -1.0), (fixed.come, 1.0)):
        whole = whole.merge(Distribution.of(counts.bin, counts.weight), sign)
    return whole
