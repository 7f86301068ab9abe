"""The fixed logarithmic grid on which every latency and every cause is counted (DESIGN §5).

Goal: percentiles that are the same on every engine, that can be merged by adding counts, and that
are exact to a tenth of a percent. Rejected: approximate quantiles of the engine (each engine has
its own), t-digests (merging is not exact). Chosen: HdrHistogram's grid, 1,024 bins in each power of
two, so a bin is at most 1/1,024 = 0.098 % wide, relative to its lower edge; below 2,048 ns each bin
is one nanosecond.

A bin's number is `(value >> shift) + shift * 1024` with `shift = max(0, floor(log2(value)) - 10)`.
The logarithm is a float, but its rounding cannot change the bin: next to a power of two, where
floor() may fall to either side, both shifts give the same number (2^k >> (k-11) is 2,048, which is
one more shift's 1,024). So the numbers are those of integer arithmetic everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

#: log2 of the bins in one power of two. 10 gives 0.098 %; each bit more doubles every result's
#: size.
PRECISION_BITS = 10
BINS_PER_OCTAVE = 1 << PRECISION_BITS

#: Points of a line of the CDF: two to a pixel of the widest picture.
STEPS = 500

Bins = NDArray[np.int64]
Weights = NDArray[np.float64]


def bin_of(value: IntegerValue) -> IntegerValue:
    """The bin of a column of whole nanoseconds as an expression; negative values count as 0."""
    import ibis

    positive = ibis.greatest(value, 0)
    octave = ibis.greatest(positive, BINS_PER_OCTAVE).log2().floor().cast("int64")
    shift = octave - PRECISION_BITS
    return (positive >> shift) + shift * BINS_PER_OCTAVE


def bins_of(values: NDArray | int) -> Bins:
    """The same for an array of nanoseconds, by integers alone."""
    whole = np.maximum(np.asarray(values, dtype=np.int64), 0)
    shift = np.zeros_like(whole)
    for step in (32, 16, 8, 4, 2, 1):
        larger = (whole >> (shift + step)) >= BINS_PER_OCTAVE
        shift = np.where(larger, shift + step, shift)
    return (whole >> shift) + shift * BINS_PER_OCTAVE


def lower_edge(bins: NDArray | int) -> Bins:
    """The smallest value (ns) in each bin; exact."""
    numbers = np.asarray(bins, dtype=np.int64)
    shift = np.maximum(numbers // BINS_PER_OCTAVE - 1, 0)
    return (numbers - shift * BINS_PER_OCTAVE) << shift


def middle(bins: NDArray | int) -> NDArray[np.float64]:
    """The value (ns) that stands for a bin: its middle, at most 0.05 % from any value in it."""
    low = lower_edge(bins)
    high = lower_edge(np.asarray(bins, dtype=np.int64) + 1) - 1
    return (low + high) / 2


def stretch(quantile: float) -> float:
    """Where a quantile lies on the tail-stretched axis: each nine as high as the one before."""
    return -math.log10(max(1 - quantile, 1e-12))


def last_quantile(whole: Distribution) -> float:
    """Where the lines of a CDF end: beyond it are single spans."""
    return min(1 - 1 / max(whole.total, 10.0), 1 - 1e-6)


def tail_quantiles(last: float) -> Weights:
    """Quantiles up to the last one, evenly spread on the stretched axis."""
    return 1 - 10 ** -np.linspace(0, stretch(last), STEPS)


@dataclass(frozen=True)
class Distribution:
    """How much weight lies in each bin; `bins` ascend and occur once."""

    bins: Bins
    weights: Weights

    @classmethod
    def of(cls, bins: NDArray, weights: NDArray) -> Distribution:
        """From counts in any order; counts of one bin are summed, bins without any are left out."""
        numbers = np.asarray(bins, dtype=np.int64)
        if not len(numbers):
            return cls(numbers, np.zeros(0))
        first = int(numbers.min())
        sums = np.bincount(numbers - first, np.asarray(weights, dtype=float)).astype(float)
        # What was taken out again leaves the rounding of its weights behind.
        held = np.flatnonzero(np.abs(sums) > 1e-9 * np.abs(sums).max())
        return cls(held + first, sums[held])

    @property
    def total(self) -> float:
        """The weight of all bins: how many spans these rows stand for."""
        return float(self.weights.sum())

    def merge(self, other: Distribution, sign: float = 1.0) -> Distribution:
        """Both counted together; with sign -1 the other is taken out."""
        return Distribution.of(
            np.concatenate([self.bins, other.bins]),
            np.concatenate([self.weights, sign * other.weights]),
        )

    def bin_at(self, quantile: float) -> int:
        """The bin of a quantile (0 to 1): the first whose cumulated weight reaches it."""
        cumulated = np.cumsum(self.weights)
        # A float sum of weights may miss the exact product by rounding; no real step is that small.
        goal = quantile * cumulated[-1] * (1 - 1e-12)
        return int(self.bins[min(np.searchsorted(cumulated, goal), len(self.bins) - 1)])

    def value_at(self, quantile: float) -> float:
        """The value (ns) of a quantile (0 to 1), within 0.05 %."""
        return float(middle(self.bin_at(quantile)))

    def places(self, quantiles: NDArray) -> NDArray[np.int64]:
        """For each quantile, which of the bins it lies in: an index."""
        cumulated = np.cumsum(self.weights) / self.total
        found = np.searchsorted(cumulated, quantiles * (1 - 1e-12), side="left")
        return np.minimum(found, len(self.bins) - 1)

    def sketch(self, quantiles: NDArray) -> Distribution:
        """Only the bins in which these quantiles lie; they lie in the same bins there."""
        kept = np.unique(self.places(quantiles))
        upto = np.cumsum(self.weights)[kept]
        upto[-1] = self.total
        return Distribution(self.bins[kept], np.diff(upto, prepend=0.0))

    def share_from(self, value_bin: int) -> float:
        """The share of weight (0 to 1) in this bin and above."""
        total = self.total
        return float(self.weights[self.bins >= value_bin].sum() / total) if total else 0.0
