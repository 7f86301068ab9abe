"""One cause's strikes: how often and how hard, whom, and what these spans would be without them.

Causes that strike few spans, and those are most, are counted in one pass: by time block, wall time,
wall time without the cause, and the cause itself, all at once, which makes a group of nearly each
span. For common causes that would be too many groups; they take three passes of few groups each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tailscope import counterfactual, measure
from tailscope.counterfactual import Baseline, Counterfactual
from tailscope.grid import Distribution, bins_of
from tailscope.impact import impact
from tailscope.measure import Spans, Strikes
from tailscope.threshold import high_from
from tailscope.timed import Counts, Timed
from tailscope.varmri import VarMRI


@dataclass(frozen=True)
class Strike:
    """A cause's distribution, its median, who has much of it, and the percentile without it.

    All of it is over the spans in which the cause was measured; `baseline` is theirs.
    """

    baseline: Baseline
    found: Strikes
    median_ns: int
    #: From how many ns on a span has much of it; None if no span has more than another.
    high_ns: int | None
    #: The wall times of those spans.
    high: Distribution
    without: Counterfactual
    #: The cause's time by block and wall time's bin, where the pass has found it on its way.
    time: Counts | None = None

    @property
    def impact(self) -> float | None:
        """VarMRI's impact value; None if no span has much of the cause, or every one."""
        if self.high_ns is None or not self.high.total > 0:
            return None
        return impact(self.baseline.whole, self.high, self.baseline.quantile)


def strike(spans: Spans, baseline: Baseline, cause: str, method: VarMRI) -> Strike:
    """Measure one cause."""
    # Where no span has all causes measured, `running` is what is left of those that were.
    known, base = counterfactual.among(spans, baseline, (cause,)) or (spans, baseline)
    if measure.are_rare(known, (cause,)):
        return rare(known, base, cause, method)
    return common(known, base, cause, method)


def rare(spans: Spans, baseline: Baseline, cause: str, method: VarMRI) -> Strike:
    """A cause that few rows have, in one pass; its median is 0."""
    blows = measure.blows(spans, cause)
    gone, come = blows.moved.gone, blows.moved.come
    values = measure.with_zero(blows.value, gone.weight, baseline.whole.total)
    time = Counts(gone.block, gone.bin, blows.ns)
    if values.bin_at(0.5) > 0:
        # Few rows, but they stand for most spans.
        return replace(common(spans, baseline, cause, method), time=time)
    high_ns = high_from(values, baseline.quantile, method)
    chosen = blows.value >= bins_of(high_ns or 1)
    return Strike(
        baseline=baseline,
        found=Strikes(values, float(gone.weight.sum()), blows.events),
        median_ns=0,
        high_ns=high_ns,
        high=Distribution.of(gone.bin[chosen], gone.weight[chosen]),
        without=counterfactual.compare(baseline, baseline.walls.moved(gone, come)),
        time=time,
    )


def common(spans: Spans, baseline: Baseline, cause: str, method: VarMRI) -> Strike:
    """A cause that many spans have: its distribution, who has much of it, and all without it."""
    found = measure.strikes(spans, cause, baseline.whole.total)
    median_ns = int(found.values.value_at(0.5))
    high_ns, high = much(spans, baseline, found, cause, method)
    without = counterfactual.unchanged(baseline)
    if found.values.bins[-1] > bins_of(median_ns):
        walls = measure.relieved(spans, {cause: median_ns})
        without = counterfactual.compare(baseline, Timed.of(walls, spans.blocks))
    return Strike(baseline, found, median_ns, high_ns, high, without)


def much(
    spans: Spans, baseline: Baseline, found: Strikes, cause: str, method: VarMRI
) -> tuple[int | None, Distribution]:
    """From which value on a span has much of a cause or counter, and those spans' wall times."""
    high = high_from(found.values, baseline.quantile, method)
    if high is None:
        return None, Distribution.of(np.zeros(0), np.zeros(0))
    return high, measure.walls_from(spans, cause, high)
