"""A reading of VarMRI's chapter 5 in float64, independent of tailscope: what tests compare with.

All values one by one and none in bins. The paper leaves three things open; they are as in
`statistics.threshold`: neighbours merge in rounds, every other pair of those that fit at a time; a
span has much of an event from the first value above the turning point on; and where no turning
point is below the target, the nearest above it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """An impact value, the part of the spans that are left out (0 to 1), and the turning points."""

    impact: float | None
    left_out: float
    points: tuple[Fraction, ...]


def percentile(values: Values, quantile: Fraction) -> float:
    """The smallest value that at least this part of the values does not exceed."""
    rank = -(-(quantile.numerator * len(values)) // quantile.denominator)
    return float(np.sort(values)[max(rank, 1) - 1])


def r_squared(y: Values, fitted: Values) -> float:
    """How much of the spread of `y` a line explains; for a flat `y`: all, if it passes through."""
    spread = float(np.sum((y - y.mean()) ** 2))
    rest = float(np.sum((y - fitted) ** 2))
    size = float(np.sum(y**2))
    if spread <= 1e-20 * size or spread == 0:
        return 1.0 if rest <= 1e-20 * size else 0.0
    return 1 - rest / spread


def is_one_line(x: Values, y: Values, cut: int, fit: float) -> bool:
    """Whether the common line of two ranges, `cut` being where the second begins, explains each."""
    centre = x.mean()
    slope = float((x - centre) @ (y - y.mean())) / float((x - centre) @ (x - centre))
    fitted = y.mean() + slope * (x - centre)
    return r_squared(y[:cut], fitted[:cut]) > fit and r_squared(y[cut:], fitted[cut:]) > fit


def turning_points(values: Values, ranges: int = 1000, fit: float = 0.95) -> list[Fraction]:
    """Where the CDF of some values bends: the ends of the lines that are left after merging."""
    ranked = np.sort(values)
    count = len(ranked)
    x = (np.arange(count) + 0.5) / count
    starts = [number * count // ranges for number in range(ranges)]
    names = [Fraction(number, ranges) for number in range(ranges)]
    while len(starts) > 1:
        ends = [*starts[1:], count]
        merged, number = [], 0
        while number < len(starts) - 1:
            begin, cut, end = starts[number], starts[number + 1], ends[number + 1]
            if is_one_line(x[begin:end], ranked[begin:end], cut - begin, fit):
                merged.append(number + 1)
                number += 1
            number += 1
        if not merged:
            break
        gone = set(merged)
        starts = [start for place, start in enumerate(starts) if place not in gone]
        names = [name for place, name in enumerate(names) if place not in gone]
    return names[1:]


def much(values: Values, points: list[Fraction], target: Fraction) -> NDArray[np.bool_]:
    """Which values are high for a target percentile."""
    nothing = np.zeros(len(values), dtype=bool)
    below = [point for point in points if point < target]
    if not points:
        return nothing
    point = below[-1] if below else points[0]
    ranked = np.sort(values)
    first = ranked[min(point.numerator * len(ranked) // point.denominator, len(ranked) - 1)]
    return values >= first if first > ranked[0] else values > first


def read(event: Values, wall: Values, target: Fraction, points: list[Fraction]) -> Reading:
    """The impact value of an event on the wall time, at a target percentile."""
    high = much(event, points, target)
    share = float(high.mean())
    if not high.any() or high.all():
        return Reading(None, share, tuple(points))
    before, after = percentile(wall, target), percentile(wall[~high], target)
    return Reading((before - after) / before, share, tuple(points))
