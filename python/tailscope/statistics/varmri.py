"""The numbers of VarMRI's method, as published; options of `explain` can change them."""

from __future__ import annotations

from dataclasses import dataclass

from tailscope.errors import TailscopeError

#: When a child is in proportion to its parent (`rules` says what speaks for each).
PEARSON, ORIGIN = "pearson", "origin"


@dataclass(frozen=True)
class VarMRI:
    """How thresholds are found and when the rules apply (DESIGN §5.1 and §5.2)."""

    #: A cause's CDF is cut into this many ranges of equal probability, which are then merged.
    ranges: int = 1_000
    #: Two neighbours are one line while it explains each of them better than this (R²).
    fit: float = 0.95
    #: A child event is in proportion to its parent above this R², and is then dropped.
    proportion: float = 0.99
    #: By which line that R² is.
    proportional: str = PEARSON

    def __post_init__(self) -> None:
        if not 10 <= self.ranges <= 100_000:
            raise TailscopeError(f"ranges is from 10 to 100,000, not {self.ranges:,}")
        if self.proportional not in (PEARSON, ORIGIN):
            raise TailscopeError(f"proportional is pearson or origin, not {self.proportional}")
        for name, value in (("fit", self.fit), ("proportion", self.proportion)):
            if not 0 < value < 1:
                raise TailscopeError(f"{name} is an R² between 0 and 1, not {value:g}")
