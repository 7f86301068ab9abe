"""Fair shares: what several causes together are worth, divided among them (Shapley, 1953).

Savings overlap. Where either of two waits alone makes a span slow, fixing one saves nothing and
fixing both saves all; where both come in one span, each seems to save what only both can. A cause's
fair share is its saving on top of those already fixed, averaged over all orders of fixing. The
shares add up to the saving of all causes together.

All subsets are computed, which is exact and bounds the number of causes. Each needs a percentile of
the sampled rows; only rows at or above the lowest of these percentiles, that without all causes,
are looked at, because fixing a cause never makes a span slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import BINS_PER_OCTAVE, PRECISION_BITS, middle
from tailscope.engines.sample import Sample

#: Causes that share at most: 256 subsets take about a second.
MOST = 8
#: With fewer rows at or above the target, causes that are often unknown are left out.
FEWEST = 30


@dataclass(frozen=True)
class Shares:
    """Each cause's fair share of what all of them together save, in ns of the target."""

    shares: dict[str, float]
    #: What the causes together save; the sum of the shares.
    saving_ns: float
    #: Rows that this rests on, of the ledger's.
    rows: int
    of_rows: int
    is_sample: bool


def shapley(
    sample: Sample, medians: dict[str, int], causes: Sequence[str], quantile: float
) -> Shares | None:
    """The fair shares of the first `MOST` causes; None if there is none, or nothing known of them.

    A cause is fixed by taking away what a span has of it above the cause's median, as for a saving.
    """
    causes = tellable(sample, list(causes[:MOST]), quantile)
    known = sample.where_known(causes)
    if not causes or not known.any():
        return None
    excess = [np.maximum(sample.values[cause][known] - medians[cause], 0) for cause in causes]
    values = percentiles(sample.wall[known], sample.weight[known], excess, quantile)
    savings = values[0] - values
    return Shares(
        shares=dict(zip(causes, divided(savings, len(causes)), strict=True)),
        saving_ns=float(savings[-1]),
        rows=int(known.sum()),
        of_rows=sample.rows,
        is_sample=not sample.is_all,
    )


def tellable(sample: Sample, causes: list[str], quantile: float) -> list[str]:
    """The causes less those that are so seldom known with the others that nothing can be told.

    The least valuable of those that stand in the way goes first.
    """
    known = sample.where_known(causes).sum()
    while len(causes) > 1 and known * (1 - quantile) < FEWEST:
        for cause in reversed(causes):
            others = [one for one in causes if one != cause]
            left = sample.where_known(others).sum()
            if left > known:
                causes, known = others, left
                break
        else:
            break
    return causes


def divided(savings: NDArray[np.float64], count: int) -> list[float]:
    """The Shapley values of a game whose worth for each subset (a bit a player) is given."""
    subsets = np.arange(1 << count)
    size = sum((subsets >> player) & 1 for player in range(count))
    orders = np.array([factorial(k) * factorial(count - 1 - k) for k in range(count)], dtype=float)
    chance = orders / factorial(count)
    shares = []
    for player in range(count):
        without = subsets[(subsets >> player) & 1 == 0]
        gain = savings[without | (1 << player)] - savings[without]
        shares.append(float(chance[size[without]] @ gain))
    return shares


def percentiles(
    wall: NDArray[np.int64],
    weight: NDArray[np.float64],
    excess: Sequence[NDArray[np.int64]],
    quantile: float,
) -> NDArray[np.float64]:
    """The percentile (ns) without each subset of the causes; bit i of its number is cause i."""
    total = float(weight.sum())
    relieved = wall - np.sum(excess, axis=0, dtype=np.int64)
    lowest = percentile_bin(relieved, weight, 0.0, quantile * total)
    near = bins_of_long(wall) >= lowest
    below = float(weight[~near].sum())
    wall, weight = wall[near].copy(), weight[near]
    excess = [one[near] for one in excess]
    found = np.empty(1 << len(excess))
    fixed = 0
    # Gray's order: neighbours differ in one cause, so one addition leads from one to the next.
    for step in range(len(found)):
        subset = step ^ (step >> 1)
        if changed := subset ^ fixed:
            cause = changed.bit_length() - 1
            wall += -excess[cause] if subset & changed else excess[cause]
        fixed = subset
        found[subset] = middle(percentile_bin(wall, weight, below, quantile * total))
    return found


def percentile_bin(
    wall: NDArray[np.int64], weight: NDArray[np.float64], below: float, goal: float
) -> int:
    """The first bin at which the weight reaches the goal, `below` being there already."""
    bins = bins_of_long(wall)
    first = int(bins.min())
    cumulated = below + np.cumsum(np.bincount(bins - first, weight))
    # A sum of floats misses the goal by rounding; no real step is that small.
    place = int(np.searchsorted(cumulated, goal * (1 - 1e-12)))
    return first + min(place, len(cumulated) - 1)


def bins_of_long(wall: NDArray[np.int64]) -> NDArray[np.int64]:
    """`grid.bins_of` by the float's exponent: three times as fast, and the same (see there)."""
    positive = np.maximum(wall, 0)
    exponent = np.frexp(np.maximum(positive, BINS_PER_OCTAVE).astype(np.float64))[1]
    shift = exponent.astype(np.int64) - 1 - PRECISION_BITS
    return (positive >> shift) + shift * BINS_PER_OCTAVE
