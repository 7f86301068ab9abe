"""Two recordings, one of them in a storm of interrupts: what these cost is put down to them.

Each side is the other's baseline for what interrupts cost outside their handlers
(`interrupt_penalty`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tailscope.engines import draw, measure
from tailscope.engines.spans import Spans, dosed
from tailscope.engines.value_counts import Ranked
from tailscope.ledger.causes import RUNNING
from tailscope.statistics.cache_penalty import MOVED
from tailscope.statistics.contribution import Side
from tailscope.statistics.interrupt_penalty import MOST, Calm, interrupt_penalty
from tailscope.statistics.target import Target


def calm(spans: Spans, total: float) -> Calm:
    """What running is like, but for its longest hundredth; of so many spans."""
    values = measure.strikes(spans, RUNNING, total).ranked
    if MOVED in spans.active:
        # Spans that another thread answered have no running, and met no interrupt that is known.
        known = values.values > 0
        if known.any():
            values = Ranked(values.values[known], values.weights[known])
            total = values.total
    upto = np.cumsum(values.weights)
    most = values.values[min(int(np.searchsorted(upto, 0.99 * upto[-1])), len(upto) - 1)]
    capped = np.minimum(values.values, most).astype(np.float64)
    mean = float(values.weights @ capped) / values.total
    variance = float(values.weights @ (capped - mean) ** 2) / values.total
    counts = {name: measure.strikes(spans, name, total).events or 0.0 for name in dosed(spans)}
    return Calm(mean, variance, {name: number / total for name, number in counts.items()})


def in_storms(base: Side, new: Side, target: Target, seed: int) -> tuple[Side, Side]:
    """Both sides, with what interrupts cost them outside of their handlers."""
    return held(base, new, target, seed), held(new, base, target, seed)


def held(side: Side, other: Side, target: Target, seed: int) -> Side:
    """A side against the other."""
    spans, total = side.spans, side.weight
    storms = [
        name
        for name in dosed(spans)
        if name not in spans.partial and measure.strikes(spans, name, total).spans > MOST * total
    ]
    if not storms:
        return side
    rows = draw.sample(spans, side.walls.distribution(), target.quantile, seed)
    usual = calm(other.spans, other.weight)
    found = (interrupt_penalty(rows, name, 0, side.draws, usual) for name in storms)
    return replace(side, penalties=tuple(one for one in found if one))
