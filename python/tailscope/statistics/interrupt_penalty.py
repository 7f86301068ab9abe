"""What an interrupt costs outside its handler, where nearly all spans meet some.

The kernel times an interrupt's handler. What the CPU does before and after it is not in that time:
the way in and out of the kernel, a virtual machine's exits, cold caches. It is in the span's
running, and is gone when the interrupts are. Where few spans are struck, `cache_penalty` compares
them with those that are not. In a storm of interrupts none is left to compare with; but some spans
meet more of them than others, and each costs the same again.

So running R is held against the number n of interrupts: of what a span would run without them, r,
and a cost c, R = r + c n. The slope of R over n is not c: the longer a span runs, the more
interrupts it meets (length bias). At λ interrupts for each ns of r it is
cov(R, n) = λ var(r) + c var(n).

- With a baseline ledger, the mean and the variance of r are those of running there, and no more is
  put down to the interrupts than running has grown. That takes it that the work is the same, which
  holds where the interrupts have come more often: if their rate is below twice the baseline's, it
  is the spans that are longer, and r is taken to have grown as a whole.
- Without, var(r) follows from what of var(R) the slope does not explain; if most of what n varies
  by may be length alone, nothing is said.

Both within blocks of time, so that what drifts over a recording is put down to nobody. It is left
alone unless c is above three standard errors, by the bootstrap over these blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines.spans import DOSED, events_column
from tailscope.ledger.causes import RUNNING
from tailscope.statistics.bootstrap import Draws
from tailscope.statistics.cache_penalty import FEWEST, MOVED, SURE

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    from tailscope.engines.sample import Sample
    from tailscope.engines.spans import Spans

#: The part of the spans from which on a storm is one: fewer, and `cache_penalty` can compare.
MOST = 0.5
#: How many times as often as in the baseline interrupts come in a storm.
STORM = 2.0
#: How much of the interrupts' variance the spans' lengths may make up where these are not known.
BY_LENGTH = 0.25
#: Proportions are in parts of 2^10, and times below 2^50 ns: whole numbers mean the same
#: everywhere.
FRACTION, LONGEST = 10, 1 << 50

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Calm:
    """Running in a baseline ledger: mean (ns) and variance (ns²), less its longest hundredth."""

    mean: float
    variance: float
    #: How many events of each cause a span met on average.
    events: dict[str, float]


@dataclass(frozen=True)
class InterruptPenalty:
    """What each event of a cause adds to a span's running."""

    cause: str
    #: What a fix leaves of the cause (ns); as large a part of its events stays.
    above_ns: int
    each_ns: int
    #: The standard error of what struck spans are brought to, as a share of it.
    error: float

    def gain(self, spans: Spans) -> IntegerValue:
        """By how much (ns) a span would run shorter; 0 if it was not struck."""
        value = ibis.least(spans.value(self.cause), LONGEST)
        over = ibis.greatest(value - self.above_ns, 0)
        part = (over << FRACTION) // ibis.greatest(value, 1)
        cost = spans.table[events_column(self.cause)].fill_null(0) * self.each_ns
        return ibis.least(cost, spans.value(RUNNING), LONGEST) * part >> FRACTION

    def gain_in(self, rows: Sample) -> NDArray[np.int64]:
        """The same for rows in memory."""
        value = np.minimum(rows.values[self.cause], LONGEST)
        over = np.maximum(value - self.above_ns, 0)
        part = (over << FRACTION) // np.maximum(value, 1)
        cost = rows.events[self.cause] * self.each_ns
        return np.minimum(np.minimum(cost, rows.values[RUNNING]), LONGEST) * part >> FRACTION


def interrupt_penalty(
    rows: Sample, cause: str, above_ns: int, draws: Draws, calm: Calm | None
) -> InterruptPenalty | None:
    """What each event of a cause costs outside of what was timed; None: nothing to be told."""
    if cause not in DOSED or cause not in rows.events:
        return None
    if any(name in rows.known for name in rows.causes):
        # What was not measured in some rows is part of their running.
        return None
    number = rows.events[cause].astype(np.float64)
    struck = number > 0
    weight = rows.weight
    if MOVED in rows.values:
        # These ran on another thread: neither their running nor their interrupts are known.
        weight = np.where(rows.values[MOVED] > 0, 0.0, weight)
        struck &= weight > 0
    if struck.sum() < FEWEST or weight[struck].sum() <= MOST * weight.sum():
        return None
    running = rows.values[RUNNING].astype(np.float64)
    # A few very long spans say little about all others.
    capped = np.minimum(running, np.quantile(running, 0.99))
    sums = by_block(capped, number, weight, rows.block, draws.counts.shape[1])
    cost = each(sums.sum(axis=0)[None], cause, calm)[0]
    costs = each(draws.counts @ sums, cause, calm)
    costs = costs[np.isfinite(costs)]
    if not np.isfinite(cost) or len(costs) < len(draws.counts) / 2:
        return None
    error = float(np.std(costs)) * draws.widening
    if cost <= SURE * error or cost < 1:
        return None
    many = float(weight @ number) / float(weight.sum())
    left = max(float(weight @ capped) / float(weight.sum()) - cost * many, 1.0)
    return InterruptPenalty(cause, above_ns, int(cost), error * many / left)


def by_block(
    running: Values, number: Values, weight: Values, block: NDArray[np.int64], blocks: int
) -> Values:
    """Of each block: spans, running, events, and the sums of squares and products around means."""

    def summed(each: Values) -> Values:
        return np.bincount(block, weight * each, blocks)

    spans = summed(np.ones_like(running))
    whole = np.maximum(spans, 1e-300)
    off = running - (summed(running) / whole)[block], number - (summed(number) / whole)[block]
    squares = (summed(off[0] ** 2), summed(off[0] * off[1]), summed(off[1] ** 2))
    return np.column_stack([spans, summed(running), summed(number), *squares])


def each(sums: Values, cause: str, calm: Calm | None) -> Values:
    """What an event costs (ns), from sums over blocks (a row each); NaN where it can't be told."""
    spans, running, number, rr, rn, nn = np.maximum(sums, 1e-300).T
    rn = sums[:, 4]
    run, many = running / spans, number / spans
    rr, rn, nn = rr / spans, rn / spans, nn / spans
    if calm:
        length = calm.variance / calm.mean * many
        if (many / run).mean() >= STORM * calm.events.get(cause, 0.0) / calm.mean:
            return np.minimum((rn - length) / nn, np.maximum(run - calm.mean, 0.0) / many)
        apart = nn - many * length / calm.mean
        told = apart > BY_LENGTH * nn
        return np.where(told, (rn - run / calm.mean * length) / np.where(told, apart, 1.0), np.nan)
    cost = np.zeros_like(run)
    for _ in range(50):
        rate = many / np.maximum(run - cost * many, 0.05 * run)
        unexplained = np.maximum(rr - rn**2 / nn, 0.0)
        inner = 1 - 4 * rate**2 * unexplained / nn
        length = (1 - np.sqrt(np.maximum(inner, 0.0))) * nn / (2 * rate**2)
        cost = np.clip((rn - rate * length) / nn, 0.0, 0.95 * run / many)
    told = (inner > 0) & (rate**2 * length <= BY_LENGTH * nn)
    return np.where(told, cost, np.nan)
