"""Spans with some causes brought down to a limit: which of them become faster, and how fast.

With a cause goes what it left cold (`cold`): part of the running of the spans that it struck.
Causes stay exclusive: what is put down to one is not running's too, so to fix `running` alone
leaves it.

Plain group-bys like those of `measure`, and the windows of `replay` for the queue that a fix takes
along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import ibis
import numpy as np

from tailscope.cause import RUNNING
from tailscope.cold import Cold
from tailscope.grid import Distribution, bin_of
from tailscope.measure import Spans
from tailscope.replay import applies, replayed
from tailscope.timed import Counts

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue, Table


@dataclass(frozen=True)
class Fix:
    """What is fixed: no cause in `limits` is above its limit (ns), and they leave nothing cold."""

    limits: dict[str, int]
    cold: tuple[Cold, ...] = ()
    #: What causes leave cold that are not fixed: running that to fix `running` does not take.
    stays: tuple[Cold, ...] = ()

    @property
    def bare(self) -> Fix:
        """The same, but what was left cold stays so."""
        return Fix(self.limits, stays=(*self.cold, *self.stays))

    def more(self, spans: Spans) -> dict[str, IntegerValue]:
        """What it takes of each cause (ns)."""
        found = {
            cause: ibis.greatest(spans.value(cause) - limit, 0)
            for cause, limit in self.limits.items()
        }
        # What two causes left cold may be the same.
        goes = [one.gain(spans) for one in self.cold]
        stays = [one.gain(spans) for one in self.stays]
        if RUNNING in found:
            if stays:
                left = ibis.greatest(*stays, *goes, 0)
                left = left - ibis.greatest(*goes, 0) if goes else left
                found[RUNNING] = ibis.greatest(found[RUNNING] - left, 0)
        elif goes:
            found[RUNNING] = ibis.greatest(*goes, 0)
        return found


@dataclass(frozen=True)
class Remedies:
    """What fixing each cause brings it to (ns), and what goes with it."""

    medians: dict[str, int] = field(default_factory=dict)
    cold: dict[str, Cold] = field(default_factory=dict)

    def fix(self, causes: Sequence[str]) -> Fix:
        """Some of them at once."""
        goes = tuple(one for cause, one in self.cold.items() if cause in causes)
        stays = tuple(one for cause, one in self.cold.items() if cause not in causes)
        return Fix({cause: self.medians[cause] for cause in causes}, goes, stays)


@dataclass(frozen=True)
class Moved:
    """Spans that a fix makes faster: `gone` from one wall time, `come` to another."""

    gone: Counts
    come: Counts


def moved(spans: Spans, fix: Fix, busy_ns: int = 0) -> Moved:
    """The spans in which a cause is above its limit, with and without the excess.

    Of those that can be replayed the ones of at least `busy_ns` come with the queue gone that they
    were in. Spans that fall below the table's floor come to the bin beneath it.
    """
    rows, without = excess(spans, fix)

    def counts(rows: Table, block: IntegerValue, wall: IntegerValue) -> Counts:
        found = spans.engine.run(
            rows.group_by(block=block, bin=bin_of(wall)).agg(weight=ibis._.weight.sum())
        )
        bins = np.maximum(found["bin"], spans.floor_bin - 1)
        return Counts(found["block"], bins, found["weight"])

    gone = counts(rows, spans.block, spans.table.wall_ns)
    come = counts(rows, spans.block, without)
    if spans.replayable and applies(fix.limits):
        queued = replayed(spans, fix.more(spans), busy_ns)
        gone = gone.plus(counts(queued, queued.block, queued.plain))
        come = come.plus(counts(queued, queued.block, queued.replay))
    return Moved(gone, come)


def excess(spans: Spans, fix: Fix) -> tuple[Table, IntegerValue]:
    """The spans with more of some causes than their limits, and their wall time without it."""
    wall = spans.table.wall_ns
    for more in fix.more(spans).values():
        wall = wall - more
    over = [spans.value(cause) > limit for cause, limit in fix.limits.items()]
    return spans.table.filter(ibis.or_(*over)), wall


def relieved(spans: Spans, whole: Distribution, fix: Fix, busy_ns: int = 0) -> Distribution:
    """The wall times (`whole`) with a fix."""
    fixed = moved(replace(spans, floor_bin=0), fix, busy_ns)
    for counts, sign in ((fixed.gone, -1.0), (fixed.come, 1.0)):
        whole = whole.merge(Distribution.of(counts.bin, counts.weight), sign)
    return whole
