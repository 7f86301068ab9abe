"""Two counters' rates together, as a table of shares."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

from tailscope.present.pages.charts.heat import Joint
from tailscope.present.pages.units import rate

#: Columns and rows of the table, without those of zero.
GROUPS = 8
#: The share of the pairs at either end that is in the first or last group, however far out.
OUTSIDE = 0.005
#: Rates are the middles of cells 9 % apart: no edge of a group may be one of them.
BESIDE = 1.04


class Groups:
    """Values of one rate in a few groups of the same ratio, zero apart."""

    def __init__(self, values: Sequence[tuple[float, int]]) -> None:
        positive = sorted(value for value in values if value[0] > 0)
        self.has_zero = len(positive) < len(values)
        self.edges: list[float] = []
        if not positive:
            return
        low, high = beyond(positive, OUTSIDE), beyond(positive, 1 - OUTSIDE)
        groups = min(len({value for value, _ in positive if low <= value <= high}), GROUPS)
        groups, low, high = max(groups, 1), low / BESIDE, high * BESIDE
        self.edges = [low * (high / low) ** (i / groups) for i in range(groups + 1)]

    def __len__(self) -> int:
        return self.has_zero + max(len(self.edges) - 1, 0)

    def place(self, value: float) -> int:
        """The group of a value. Values beyond an end are in the group there."""
        if value <= 0:
            return 0
        return self.has_zero + min(bisect_right(self.edges[1:], value), len(self.edges) - 2)

    def names(self) -> list[str]:
        """The middle of each group, as a rate."""
        middles = [math.sqrt(low * high) for low, high in pairwise(self.edges)]
        return [*(["0"] if self.has_zero else []), *map(rate, middles)]


def beyond(values: Sequence[tuple[float, int]], share: float) -> float:
    """The value beyond which the rest of this share is."""
    goal, below = share * sum(count for _, count in values), 0
    for value, count in values:
        below += count
        if below > goal:
            return value
    return values[-1][0]


def shares(cells: Joint) -> tuple[list[str], list[list[str]]]:
    """The head, with the first rate across, and a row for each group of the second rate.

    A row begins with its name; the others are % of the pairs.
    """
    across = Groups([(x, pairs) for x, _, pairs in cells])
    down = Groups([(y, pairs) for _, y, pairs in cells])
    counts = [[0] * len(across) for _ in range(len(down))]
    for x, y, pairs in cells:
        counts[down.place(y)][across.place(x)] += pairs
    total = max(sum(pairs for *_, pairs in cells), 1)
    rows = [
        [name, *(f"{100 * count / total:.2f}" if count else "·" for count in row)]
        for name, row in zip(down.names(), counts, strict=True)
    ]
    return ["", *across.names()], rows[::-1]
