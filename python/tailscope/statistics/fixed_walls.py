"""Wall times with a fix: which spans become faster, and how fast.

Plain group-bys like those of `measure`, and the spans of `replay` for the queue that a fix takes
along.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis
import numpy as np

from tailscope.engines import in_memory
from tailscope.engines.grid import bin_of, bins_of
from tailscope.engines.spans import Spans
from tailscope.engines.timed import Counts, Timed
from tailscope.ledger.causes import QUEUE
from tailscope.statistics.fix import Fix
from tailscope.statistics.replay import Queued

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    from tailscope.engines.sample import Sample


def fixed(spans: Spans, walls: Timed, fix: Fix) -> Timed:
    """The wall times (`walls`) with a fix: by time block, from the bin below the spans' floor on.

    The causes are at their limits in the spans that had more, and those that waited for others come
    with the queue gone that they were in, if that is known. What falls below the floor comes to the
    bin beneath it.
    """
    gone, come = excess_in(spans.in_memory, fix) if spans.in_memory else excess(spans, fix)
    beneath = spans.floor_bin - 1
    walls = walls.from_bin(spans.floor_bin).moved(gone.at_least(beneath), come.at_least(beneath))
    # To fix the queue itself shortens no service.
    if isinstance(spans.queued, Queued) and QUEUE not in fix.limits:
        walls = spans.queued.gone(walls, fix, spans.floor_bin)
    return walls


def excess(spans: Spans, fix: Fix) -> tuple[Counts, Counts]:
    """The spans with more of some causes than their limits, by wall time with and without it."""
    wall = spans.table.wall_ns
    for more in fix.more(spans).values():
        wall = wall - more
    over = [spans.value(cause) > above for cause, above in fix.changed_above.items()]
    rows = spans.table.filter(ibis.or_(*over))

    def counts(wall: IntegerValue) -> Counts:
        found = spans.engine.run(
            rows.group_by(block=spans.block, bin=bin_of(wall)).agg(weight=spans.weight())
        )
        return Counts(found["block"], found["bin"], found["weight"])

    return counts(spans.table.wall_ns), counts(wall)


def excess_in(rows: Sample, fix: Fix) -> tuple[Counts, Counts]:
    """The same for rows in memory."""
    above = fix.changed_above.items()
    over = np.logical_or.reduce([rows.values[cause] > ns for cause, ns in above])
    rows = rows.where(over)
    without = rows.wall - sum(fix.more_in(rows).values(), np.zeros_like(rows.wall))
    return in_memory.walls(rows), Counts(rows.block, bins_of(without), rows.weight)
