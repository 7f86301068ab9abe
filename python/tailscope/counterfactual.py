"""What the target percentile would have been with a cause fixed (DESIGN §5.3).

Each span's time above the cause's median is taken away and the percentile is computed again. The
median, not zero: a fix brings a cause to what is usual, and for most causes the usual is 0 anyway.
The prediction assumes that the spans' other causes stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailscope import measure
from tailscope.bootstrap import Draws, Interval, interval, interval_of
from tailscope.grid import Distribution
from tailscope.measure import Spans
from tailscope.timed import Timed


@dataclass(frozen=True)
class Baseline:
    """The percentile as it was, with what is needed to compare against it."""

    walls: Timed
    whole: Distribution
    quantile: float
    draws: Draws
    target: Interval
    replicates: np.ndarray

    @classmethod
    def of(cls, walls: Timed, quantile: float, draws: Draws) -> Baseline:
        """The target percentile and its replicates."""
        target, replicates = interval_of(walls, draws, quantile)
        return cls(walls, walls.distribution(), quantile, draws, target, replicates)


@dataclass(frozen=True)
class Counterfactual:
    """The percentile predicted without one or several causes, and what that saves."""

    predicted: Interval
    saving: Interval
    walls: Distribution


def unchanged(baseline: Baseline) -> Counterfactual:
    """For a cause that no span has more of than the median."""
    return Counterfactual(baseline.target, Interval(0.0, 0.0, 0.0), baseline.whole)


def compare(baseline: Baseline, walls: Timed) -> Counterfactual:
    """The percentile of the wall times that would have been."""
    predicted, replicates = interval_of(walls, baseline.draws, baseline.quantile)
    # Both percentiles come from the same draws, so what the draw itself does to both cancels.
    saved = baseline.target.ns - predicted.ns
    saving = interval(saved, baseline.replicates - replicates, baseline.draws)
    return Counterfactual(predicted, saving, walls.distribution())


def together(
    spans: Spans, baseline: Baseline, medians: dict[str, int], order: Sequence[str]
) -> list[tuple[tuple[str, ...], Counterfactual]]:
    """The first two, three, … causes of `order` fixed at once."""
    found = []
    for count in range(2, len(order) + 1):
        causes = tuple(order[:count])
        if measure.are_rare(spans, causes) and not any(medians[cause] for cause in causes):
            moved = measure.moved(spans, causes)
            walls = baseline.walls.moved(moved.gone, moved.come)
        else:
            limits = {cause: medians[cause] for cause in causes}
            walls = Timed.of(measure.relieved(spans, limits), spans.blocks)
        found.append((causes, compare(baseline, walls)))
    return found
