"""Thresholds: from which value on a span has much of a cause.

A threshold is a turning point of the cause's own CDF, found by piecewise-linear fits; no number of
ns has to be chosen. Of several the one nearest below the target counts (DESIGN §5.1). A cause that
fewer spans have than lie above the target bends only above it; then the nearest above counts. The
paper leaves that open, and which neighbours merge first; the published analyzer goes on upwards
too. A CDF that never bends has no threshold: no span has much more of the cause than another.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.value_counts import Ranked
from tailscope.statistics.varmri import VarMRI

#: A range holds so many spans at least: of a small ledger there are fewer ranges.
FEWEST = 2
#: What is below this part of the squared values is rounding.
DUST = 1e-20


@dataclass(frozen=True)
class Lines:
    """Groups of CDF points, for straight-line fits: x is the probability, y the value.

    Means and sums of squares around them: sums of plain squares would lose a narrow CDF to
    rounding.
    """

    n: NDArray
    x: NDArray
    y: NDArray
    xx: NDArray
    xy: NDArray
    yy: NDArray

    def __add__(self, other: Lines) -> Lines:
        n = self.n + other.n
        part, cross = other.n / n, self.n * other.n / n
        dx, dy = other.x - self.x, other.y - self.y
        return Lines(
            n,
            self.x + part * dx,
            self.y + part * dy,
            self.xx + other.xx + cross * dx * dx,
            self.xy + other.xy + cross * dx * dy,
            self.yy + other.yy + cross * dy * dy,
        )

    def __getitem__(self, rows: slice | NDArray) -> Lines:
        return Lines(*(column[rows] for column in self.columns))

    @property
    def columns(self) -> tuple[NDArray, ...]:
        """All figures, in the order of the fields."""
        return (self.n, self.x, self.y, self.xx, self.xy, self.yy)

    @property
    def slope(self) -> NDArray:
        """The slope of each group's least-squares line, which goes through its means."""
        return np.divide(self.xy, self.xx, out=np.zeros_like(self.xy), where=self.xx > 0)

    def explained(self, by: Lines) -> NDArray:
        """R² of each group under the line of another; 1 for a flat group if it passes through."""
        slope = by.slope
        off = self.y - by.y - slope * (self.x - by.x)
        residual = self.yy - 2 * slope * self.xy + slope**2 * self.xx + self.n * off**2
        dust = DUST * (self.yy + self.n * self.y**2)
        flat = self.yy <= dust
        passes = np.where(residual <= dust, 1.0, 0.0)
        return np.where(flat, passes, 1 - residual / np.where(flat, 1.0, self.yy))


def ranges_of(values: Ranked, ranges: int) -> Lines:
    """The CDF's points in ranges of equal probability, a point for each span.

    Ranges begin with a whole span, as far as weights are whole.
    """
    upto = np.cumsum(values.weights)
    total = upto[-1]
    # Sums of weights miss whole numbers by rounding.
    edges = np.floor(np.arange(1, ranges) * (total / ranges) + 1e-6)
    cuts = np.union1d(upto[:-1], edges)
    low, high = np.append(0.0, cuts), np.append(cuts, total)
    middle, length = (low + high) / 2, high - low
    number = np.searchsorted(edges, middle, side="right")
    y = values.values[np.searchsorted(upto[:-1], middle, side="right")].astype(np.float64)

    def summed(each: NDArray) -> NDArray:
        return np.bincount(number, each, ranges)

    n = summed(length)
    x = middle / total
    # Relative to one of its own values, a range's mean is exact where all are alike.
    first = y[np.searchsorted(number, np.arange(ranges))]
    mean_x = summed(length * x) / n
    mean_y = first + summed(length * (y - first[number])) / n
    dx, dy = x - mean_x[number], y - mean_y[number]
    # Spans of one value lie side by side, each in its middle.
    inside = length * np.maximum(length**2 - 1, 0) / (12 * total**2)
    return Lines(
        n,
        mean_x,
        mean_y,
        summed(length * dx * dx + inside),
        summed(length * dx * dy),
        summed(length * dy * dy),
    )


def turning_points(values: Ranked, method: VarMRI) -> list[Fraction]:
    """The probabilities (0 to 1, ascending) at which the cause's CDF bends.

    Goal: the places where "having a little" becomes "having much", without a threshold in ns.
    Neighbours are merged in rounds, every other pair of those that fit one line at a time, until no
    two neighbours both keep R² above the method's under their common line.
    """
    ranges = min(method.ranges, int(values.total / FEWEST + 1e-6))
    if ranges < 2:
        return []
    groups = ranges_of(values, ranges)
    starts = np.arange(ranges)
    while len(starts) > 1:
        one, other = groups[slice(None, -1)], groups[slice(1, None)]
        both = one + other
        fits = np.flatnonzero(np.minimum(one.explained(both), other.explained(both)) > method.fit)
        if not len(fits):
            break
        # Pairs that share a range can't both be merged in one round: every other one of each row.
        new_row = np.diff(fits, prepend=-2) > 1
        row_start = np.maximum.accumulate(np.where(new_row, fits, 0))
        first = fits[(fits - row_start) % 2 == 0]
        keep = np.ones(len(starts), dtype=bool)
        keep[first + 1] = False
        merged = [column.copy() for column in groups.columns]
        for column, summed in zip(merged, both.columns, strict=True):
            column[first] = summed[first]
        groups = Lines(*(column[keep] for column in merged))
        starts = starts[keep]
    return [Fraction(int(start), ranges) for start in starts[1:]]


def high_from(values: Ranked, target: Fraction, method: VarMRI) -> int | None:
    """From which value on a span has much of the cause; None if no span has more than another.

    That is the first value above the turning point nearest below the target, or above it if there
    is none below. The least value of all is never much.
    """
    if len(values.values) < 2:
        return None
    points = turning_points(values, method)
    if not points:
        return None
    below = [point for point in points if point < target]
    upto = np.cumsum(values.weights)
    goal = np.floor(float(below[-1] if below else points[0]) * upto[-1] + 1e-6)
    place = int(np.searchsorted(upto, goal + 1e-6, side="right"))
    return int(values.values[min(max(place, 1), len(upto) - 1)])
