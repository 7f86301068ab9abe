"""Thresholds: from which value on a span has much of a cause.

A threshold is a turning point of the cause's own CDF, found by piecewise-linear fits; no number of
ns has to be chosen. Of several the one nearest below the target counts (DESIGN §5.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailscope.grid import Distribution, lower_edge
from tailscope.varmri import VarMRI

#: Points of the CDF in each range: enough to tell a line from a bend.
POINTS = 4


@dataclass(frozen=True)
class Lines:
    """Sums for straight-line fits over groups of CDF points: x is the probability, y the value."""

    n: NDArray
    x: NDArray
    y: NDArray
    xx: NDArray
    xy: NDArray
    yy: NDArray

    def __add__(self, other: Lines) -> Lines:
        return Lines(*(mine + yours for mine, yours in zip(self.sums, other.sums, strict=True)))

    def __getitem__(self, rows: slice | NDArray) -> Lines:
        return Lines(*(column[rows] for column in self.sums))

    @property
    def sums(self) -> tuple[NDArray, ...]:
        """All sums, in the order of the fields."""
        return (self.n, self.x, self.y, self.xx, self.xy, self.yy)

    def fit(self) -> tuple[NDArray, NDArray]:
        """Slope and intercept of each group's least-squares line."""
        spread = self.n * self.xx - self.x**2
        slope = (self.n * self.xy - self.x * self.y) / np.where(spread > 0, spread, 1)
        return slope, (self.y - slope * self.x) / self.n

    def explained(self, slope: NDArray, intercept: NDArray) -> NDArray:
        """R² of each group under a given line; 1 for a flat group if the line passes through it."""
        residual = (
            self.yy
            - 2 * (slope * self.xy + intercept * self.y)
            + slope**2 * self.xx
            + 2 * slope * intercept * self.x
            + intercept**2 * self.n
        )
        spread = self.yy - self.y**2 / self.n
        # Differences of large sums: what is below a billionth of the size is rounding.
        dust = 1e-9 * np.maximum(self.yy, 1e-300)
        residual = np.where(residual < dust, 0.0, residual)
        flat = spread < dust
        return np.where(
            flat, np.where(residual == 0.0, 1.0, 0.0), 1 - residual / np.where(flat, 1.0, spread)
        )


def inverse_cdf(values: Distribution, probability: NDArray) -> NDArray[np.float64]:
    """The value (ns) at each probability, spread evenly inside a bin: bins must not look like
    bends.

    Zero is not spread: spans without the cause have none of it.
    """
    cumulated = np.cumsum(values.weights) / values.total
    place = np.minimum(np.searchsorted(cumulated, probability), len(values.bins) - 1)
    bins = values.bins[place]
    share = values.weights[place] / values.total
    inside = np.clip((probability - (cumulated[place] - share)) / share, 0, 1)
    low = lower_edge(bins)
    return np.where(bins > 0, low + inside * (lower_edge(bins + 1) - low), 0.0)


def turning_points(values: Distribution, method: VarMRI) -> NDArray[np.float64]:
    """The probabilities (0 to 1, ascending) at which the cause's CDF bends.

    Goal: the places where "having a little" becomes "having much", without a threshold in ns.
    Neighbours are merged in rounds, every other pair of those that fit one line at a time, until no
    two neighbours both keep R² above the method's under their common line.
    """
    ranges = method.ranges
    probability = (np.arange(ranges * POINTS) + 0.5) / (ranges * POINTS)
    y = inverse_cdf(values, probability)
    y = y / max(float(y.max()), 1e-300)
    groups = Lines(*(
        column.reshape(ranges, POINTS).sum(axis=1)
        for column in (np.ones_like(y), probability, y, probability**2, probability * y, y**2)
    ))  # fmt: skip
    starts = np.arange(ranges) / ranges
    while len(starts) > 1:
        both = groups[slice(None, -1)] + groups[slice(1, None)]
        slope, intercept = both.fit()
        fit = np.minimum(
            groups[slice(None, -1)].explained(slope, intercept),
            groups[slice(1, None)].explained(slope, intercept),
        )
        fits = np.flatnonzero(fit > method.fit)
        if not len(fits):
            break
        # Pairs that share a range can't both be merged in one round: every other one of each row.
        new_row = np.diff(fits, prepend=-2) > 1
        row_start = np.maximum.accumulate(np.where(new_row, fits, 0))
        first = fits[(fits - row_start) % 2 == 0]
        keep = np.ones(len(starts), dtype=bool)
        keep[first + 1] = False
        merged = [column.copy() for column in groups.sums]
        for column, summed in zip(merged, both.sums, strict=True):
            column[first] = summed[first]
        groups = Lines(*(column[keep] for column in merged))
        starts = starts[keep]
    return starts[1:]


def high_from(values: Distribution, quantile: float, method: VarMRI) -> int | None:
    """From which value (ns) a span has much of the cause; None if no span has more than another.

    A rare cause may bend only above the target (its CDF is flat at 0 up to there): then having it
    at all is much.
    """
    if len(values.bins) < 2:
        return None
    below = [point for point in turning_points(values, method) if point < quantile]
    if below:
        cumulated = np.cumsum(values.weights) / values.total
        place = int(np.searchsorted(cumulated, below[-1], side="right"))
        chosen = values.bins[min(place, len(values.bins) - 1)]
        if chosen > values.bins[0]:
            return int(lower_edge(chosen))
    return int(lower_edge(values.bins[1]))
