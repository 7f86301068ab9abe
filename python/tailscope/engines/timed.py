"""Distributions over time: how much weight lies in each time block and bin.

Dense, because they are added to, taken from and multiplied as wholes: 256 blocks by the bins
between the fastest and the slowest span, at most some 50 MB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import Bins, Distribution, Weights


@dataclass(frozen=True)
class Counts:
    """Weight by time block and bin as the engine returns it: one entry a group."""

    block: NDArray[np.int64]
    bin: Bins
    weight: Weights

    def at_least(self, floor: int) -> Counts:
        """With all that lies below a bin in it."""
        return Counts(self.block, np.maximum(self.bin, floor), self.weight)

    def plus(self, other: Counts) -> Counts:
        """Both: a group may then have two entries, which are added up."""
        return Counts(
            np.concatenate([self.block, other.block]),
            np.concatenate([self.bin, other.bin]),
            np.concatenate([self.weight, other.weight]),
        )


@dataclass(frozen=True)
class Timed:
    """Weight by time block (row) and bin (column); column 0 is the bin `first`."""

    first: int
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, counts: Counts, blocks: int) -> Timed:
        """All groups in their places."""
        first, last = int(counts.bin.min()), int(counts.bin.max())
        return cls(first, spread(counts, blocks, first, last))

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self.weight)

    @property
    def last(self) -> int:
        """The last column's bin."""
        return self.first + self.weight.shape[1] - 1

    def reaching(self, first: int) -> Timed:
        """With columns from a bin on at least."""
        if first >= self.first:
            return self
        return Timed(first, np.pad(self.weight, ((0, 0), (self.first - first, 0))))

    def from_bin(self, floor: int) -> Timed:
        """With all that lies below a bin summed up in the bin beneath it."""
        below = floor - self.first
        if below <= 0:
            return self
        fast = self.weight[:, :below].sum(axis=1, keepdims=True)
        return Timed(floor - 1, np.hstack([fast, self.weight[:, below:]]))

    def moved(self, gone: Counts, come: Counts) -> Timed:
        """With some spans taken out of their bins and put into others."""
        if not len(gone.bin):
            return self
        first = min(self.first, int(come.bin.min()))
        last = max(self.last, int(come.bin.max()))
        weight = spread(come, self.blocks, first, last)
        weight -= spread(gone, self.blocks, first, last)
        begin = self.first - first
        weight[:, begin : begin + self.weight.shape[1]] += self.weight
        # What was taken out of a bin leaves the rounding of its weights behind.
        weight[np.abs(weight) < 1e-9 * weight.max()] = 0.0
        return Timed(first, weight)

    def distribution(self) -> Distribution:
        """All blocks together."""
        total = self.weight.sum(axis=0)
        return Distribution.of(self.first + np.arange(len(total)), total)


def spread(counts: Counts, blocks: int, first: int, last: int) -> NDArray[np.float64]:
    """Counts as a matrix of blocks by the bins from the first to the last."""
    width = last - first + 1
    cell = counts.block * width + (counts.bin - first)
    sums = np.bincount(cell, counts.weight, blocks * width)
    return sums.astype(np.float64, copy=False).reshape(blocks, width)
