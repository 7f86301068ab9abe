"""How much weight each value of a cause or counter has: its CDF, value by value.

The log grid is 0.1 % wide. That is plenty for a percentile, and too coarse for the bends of a CDF:
where many spans have nearly the same value, a thousand ranges of equal probability lie in a few
bins, and what is left of the CDF is the grid. So a cause's own values are counted one by one, and
of very long ledgers to fifteen binary digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import Distribution, bins_of

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

#: Ledgers of up to so many rows are counted value by value: that is what comes to Python at most.
EXACT_ROWS = 2_000_000
#: Beyond that, a value keeps so many leading binary digits: 0.006 % of it, and at most 16,384
#: values in each power of two.
DIGITS = 15


@dataclass(frozen=True)
class Ranked:
    """The values (ns or counts, ascending, each once) and how much weight each has."""

    values: NDArray[np.int64]
    weights: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray, weights: NDArray) -> Ranked:
        """From values in any order."""
        whole, place = np.unique(np.asarray(values, dtype=np.int64), return_inverse=True)
        sums = np.bincount(place, np.asarray(weights, dtype=float), len(whole))
        held = sums > 1e-9 * sums.max(initial=0.0)
        return cls(whole[held], sums[held])

    @property
    def total(self) -> float:
        """The weight of all values."""
        return float(self.weights.sum())

    def share_from(self, least: int) -> float:
        """The share of weight (0 to 1) of this value and above."""
        total = self.total
        return float(self.weights[self.values >= least].sum()) / total if total else 0.0

    def binned(self) -> Distribution:
        """The same on the grid."""
        return Distribution.of(bins_of(self.values), self.weights)


def shortened(value: IntegerValue) -> IntegerValue:
    """A column of whole numbers with their leading digits only, as an expression."""
    import ibis

    positive = ibis.greatest(value, 1 << (DIGITS - 1))
    shift = positive.log2().floor().cast("int64") - (DIGITS - 1)
    return (value >> shift) << shift
