"""Along the side of a picture: where values are, and which of them are labelled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tailscope.present.pages.units import prefix, short

#: Values and how often each came, the lowest first.
Cells = Sequence[tuple[float, int]]

#: If a tail is this many times the median, equal steps can't show both.
WIDE_RANGE = 25.0
#: The part of a logarithmic axis that zero takes, where zero is one of the values.
ZERO = 0.07


@dataclass(frozen=True)
class Axis:
    """Where values lie between the ends of an axis."""

    low: float
    high: float
    logarithmic: bool = False
    #: Zero has a place of its own, before the lowest value.
    zero: bool = False
    #: Labels of a logarithmic axis are at powers of two, as for sizes of memory.
    binary: bool = False

    @classmethod
    def linear(cls, low: float, high: float) -> Axis:
        """An axis on which equal steps are equally long."""
        return cls(low, high if high > low else low + max(1.0, abs(low)))

    @classmethod
    def ratio(cls, low: float, high: float, zero: bool = False) -> Axis:
        """An axis on which equal ratios are equally long; zero, if there is one, lies before."""
        low = low if low > 0 else 1.0
        return cls(low, high if high > low else 2 * low, True, zero)

    @classmethod
    def of(cls, cells: Cells, outside: float) -> Axis | None:
        """The axis that suits a distribution; None if nothing is above zero.

        It starts at zero if that is near, lies close around values that are close together, and is
        logarithmic for values that are far apart. The part `outside` of all values, at either end,
        may lie beyond it.
        """
        positive = next((value for value, _ in cells if value > 0), None)
        if positive is None:
            return None
        low, high, middle = (quantile(cells, at) for at in (outside, 1 - outside, 0.5))
        if middle <= 0 or high / middle > WIDE_RANGE:
            zeros = cells[0][0] <= 0
            return cls.ratio(max(low, positive) / 1.1, max(high, positive) * 1.1, zeros)
        if low < 0.4 * high:
            return cls.linear(0.0, high * 1.05)
        air = max((high - low) * 0.08, high * 0.004)
        return cls.linear(low - air, high + air)

    def place(self, value: float) -> float:
        """How far a value is from the start, 0 to 1; values beyond the axis are at its ends."""
        if not self.logarithmic:
            share = (value - self.low) / (self.high - self.low)
        elif value <= 0:
            share = 0.0
        else:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
            share = ZERO + share * (1 - ZERO) if self.zero else share
        return min(max(share, 0.0), 1.0)

    def holds(self, value: float) -> bool:
        """Whether a value lies on the axis."""
        return self.low <= value <= self.high or (self.zero and value <= 0)

    def ticks(self, most: int) -> list[tuple[float, str]]:
        """Round values, at most about so many, each with its label."""
        ratios = self.ratios(most) if self.logarithmic else []
        if len(ratios) < 2:
            found = labelled(steps_between(self.low, self.high, most))
        else:
            found = [(tick, short(tick)) for tick in ratios]
        return [(0.0, "0"), *found] if self.zero else found

    def ratios(self, most: int) -> list[float]:
        """Powers of ten, with 2 and 5 between if there is room; or powers of two."""
        if self.binary:
            first, last = math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))
            step = max(1, math.ceil((last - first + 1) / max(most, 1)))
            return [2.0**power for power in range(first, last + 1, step)]
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        ticks: list[float] = []
        for steps in ((1, 2, 5), (1, 3), (1,)):
            ticks = [step * 10.0**power for power in powers for step in steps]
            ticks = [tick for tick in ticks if self.low <= tick <= self.high]
            if len(ticks) <= most:
                return ticks
        return ticks[:: math.ceil(len(ticks) / max(most, 1))]


def quantile(cells: Cells, share: float) -> float:
    """The value at or below which this share of all values is."""
    goal, below = share * sum(count for _, count in cells), 0
    for value, count in cells:
        below += count
        if below >= goal:
            return value
    return cells[-1][0]


def steps_between(low: float, high: float, most: int) -> list[float]:
    """Multiples of a round step between two values."""
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    sizes = (size * power for size in (1, 2, 5, 10))
    step = next((size for size in sizes if size >= rough * 0.8), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    # Between neighbouring floats, several of them are the same.
    return list(dict.fromkeys(number * step for number in range(first, last + 1)))


def labelled(ticks: Sequence[float]) -> list[tuple[float, str]]:
    """Ticks at equal steps, with one prefix and as many digits as tell them apart."""
    scale, letter = prefix(max((abs(tick) for tick in ticks), default=0.0))
    step = (ticks[1] - ticks[0]) / scale if len(ticks) > 1 else 1.0
    digits = min(max(-math.floor(math.log10(step * 1.0001)), 0), 9)
    return [(tick, f"{tick / scale:.{digits}f}{letter}" if tick else "0") for tick in ticks]
