"""Spans with some causes brought down to a limit: which of them become faster, and how fast.

With a cause goes what it left cold (`cold`): part of the running of the spans that it struck.
Causes stay exclusive: what is put down to one is not running's too, so to fix `running` alone
leaves it.

Plain group-bys like those of `measure`, and the spans of `replay` for the queue that a fix takes
along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope import here
from tailscope.cause import QUEUE, RUNNING
from tailscope.grid import bin_of
from tailscope.outside import Left
from tailscope.spans import Spans
from tailscope.timed import Counts, Timed

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    from tailscope.sample import Sample

    #: Whole numbers of all rows: as an expression, or here.
    Whole = TypeVar("Whole", IntegerValue, NDArray[np.int64])


@dataclass(frozen=True)
class Fix:
    """What is fixed: no cause in `limits` is above its limit (ns), and they leave nothing cold."""

    limits: dict[str, int]
    cold: tuple[Left, ...] = ()
    #: What causes leave cold that are not fixed: running that to fix `running` does not take.
    stays: tuple[Left, ...] = ()

    @property
    def bare(self) -> Fix:
        """The same, but what was left cold stays so."""
        return Fix(self.limits, stays=(*self.cold, *self.stays))

    def more(self, spans: Spans) -> dict[str, IntegerValue]:
        """What it takes of each cause (ns)."""
        return self.taken(spans.value, lambda one: one.gain(spans), ibis.greatest)

    def more_in(self, rows: Sample) -> dict[str, NDArray[np.int64]]:
        """The same for rows that are here."""

        def greatest(*values: NDArray[np.int64] | int) -> NDArray[np.int64]:
            return reduce(np.maximum, values)

        return self.taken(rows.values.__getitem__, lambda one: one.gain_in(rows), greatest)

    def taken(
        self,
        value: Callable[[str], Whole],
        gain: Callable[[Left], Whole],
        greatest: Callable[..., Whole],
    ) -> dict[str, Whole]:
        """What it takes, from the values of causes and what they left cold."""
        found = {cause: greatest(value(cause) - limit, 0) for cause, limit in self.limits.items()}
        # What two causes left cold may be the same.
        goes = [gain(one) for one in self.cold]
        stays = [gain(one) for one in self.stays]
        if RUNNING in found:
            if stays:
                left = greatest(*stays, *goes, 0)
                left = left - greatest(*goes, 0) if goes else left
                found[RUNNING] = greatest(found[RUNNING] - left, 0)
        elif goes:
            found[RUNNING] = greatest(*goes, 0)
        return found


@dataclass(frozen=True)
class Remedies:
    """What fixing each cause brings it to (ns), and what goes with it."""

    medians: dict[str, int] = field(default_factory=dict)
    cold: dict[str, Left] = field(default_factory=dict)

    def fix(self, causes: Sequence[str]) -> Fix:
        """Some of them at once."""
        goes = tuple(one for cause, one in self.cold.items() if cause in causes)
        stays = tuple(one for cause, one in self.cold.items() if cause not in causes)
        return Fix({cause: self.medians[cause] for cause in causes}, goes, stays)


def fixed(spans: Spans, walls: Timed, fix: Fix) -> Timed:
    """The wall times (`walls`) with a fix: by time block, from the bin below the spans' floor on.

    The causes are at their limits in the spans that had more, and those that waited for others come
    with the queue gone that they were in, if that is known. What falls below the floor comes to the
    bin beneath it.
    """
    gone, come = here.excess(spans.here, fix) if spans.here else excess(spans, fix)
    beneath = spans.floor_bin - 1
    walls = walls.from_bin(spans.floor_bin).moved(gone.at_least(beneath), come.at_least(beneath))
    # To fix the queue itself shortens no service.
    if spans.queued and QUEUE not in fix.limits:
        walls = spans.queued.gone(walls, fix, spans.floor_bin)
    return walls


def excess(spans: Spans, fix: Fix) -> tuple[Counts, Counts]:
    """The spans with more of some causes than their limits, by wall time with and without it."""
    wall = spans.table.wall_ns
    for more in fix.more(spans).values():
        wall = wall - more
    over = [spans.value(cause) > limit for cause, limit in fix.limits.items()]
    rows = spans.table.filter(ibis.or_(*over))

    def counts(wall: IntegerValue) -> Counts:
        found = spans.engine.run(
            rows.group_by(block=spans.block, bin=bin_of(wall)).agg(weight=spans.weight())
        )
        return Counts(found["block"], found["bin"], found["weight"])

    return counts(spans.table.wall_ns), counts(wall)
