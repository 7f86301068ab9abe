"""Windows of a recording's time: one at random in each of its blocks, all of the same length.

What needs neighbouring spans, and takes too long for all of them, is done for the windows
(`transfer` says what that means for all). As each block has its own window, the error of drawing is
part of what makes blocks differ, and an interval that resamples blocks (`bootstrap`) contains it.

A window has a lead-in in the same block: rows before it that are read and not counted. Only whole
numbers below 2^63 are used, so that every engine and numpy choose the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    Moments = TypeVar("Moments", IntegerValue, NDArray[np.int64])

#: A window's start is one of so many places in its block.
PLACES = 4_093
#: A lead-in is as long as this part of its window.
LEAD = 1 / 4


@dataclass(frozen=True)
class TimeWindows:
    """A window of `length` ns in each block of 2^`power` ns, with a lead-in of `lead` ns."""

    power: int
    length: int
    lead: int
    seed: int

    @classmethod
    def reading(cls, share: float, power: int, seed: int) -> TimeWindows:
        """Windows with lead-ins of a share (0 to 1) of all time."""
        length = int(share / (1 + LEAD) * (1 << power))
        return cls(power, max(length, 1), int(length * LEAD), seed % PLACES)

    def start(self, block: Moments) -> Moments:
        """Where a block's window starts (ns since the block does)."""
        mixed = (block * block * 7_919 + block * 104_729 + self.seed * 1_299_709) % PLACES
        return mixed * (((1 << self.power) - self.lead - self.length) // PLACES) + self.lead

    def since(self, moment: Moments) -> Moments:
        """How long ago (ns) the window of a moment's block started; negative before it."""
        return (moment & ((1 << self.power) - 1)) - self.start(moment >> self.power)

    def has(self, moment: Moments) -> Moments:
        """Whether a moment lies in a window."""
        since = self.since(moment)
        return (since >= 0) & (since < self.length)

    def reads(self, moment: Moments) -> Moments:
        """Whether a moment lies in a window or in its lead-in."""
        since = self.since(moment)
        return (since >= -self.lead) & (since < self.length)
