"""Percentiles as people write them: p99, p99.9, p999, 99.9, p50.

Exact, as decimal fractions: the float 99.9 / 100 is above 0.999, and a turning point at 0.999 would
count as lying below p99.9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from tailscope.errors import TailscopeError

#: What can be asked for.
LOWEST, HIGHEST = Decimal(1), Decimal("99.99")


@dataclass(frozen=True)
class Target:
    """The percentile to be explained; a float stands for the decimal that it prints as."""

    percent: Decimal

    def __init__(self, percent: Decimal | float | str) -> None:
        object.__setattr__(self, "percent", Decimal(str(percent)))

    @property
    def exact(self) -> Fraction:
        """As a fraction, 0 to 1."""
        return Fraction(self.percent) / 100

    @property
    def quantile(self) -> float:
        """The float next to the exact fraction, 0 to 1."""
        return float(self.exact)

    @property
    def beyond(self) -> Fraction:
        """The part of the spans above it, 0 to 1; exact, for `1 - quantile` is not."""
        return 1 - self.exact

    @property
    def has_tail(self) -> bool:
        """Whether it lies above the median: then a cause's own median says what is usual."""
        return self.percent > 50

    @property
    def name(self) -> str:
        """p99, p99.9."""
        return f"p{self.percent.normalize():f}"


def parse(text: str) -> Target:
    """A percentile from p1 to p99.99; p999 is read as p99.9, p9999 as p99.99."""
    found = re.fullmatch(r"[pP]?(\d+)(\.\d+)?", text.strip())
    if not found:
        raise TailscopeError(f"'{text}' is not a percentile; write p99 or p99.9")
    whole, fraction = found.groups()
    if fraction is None and len(whole) > 2 and whole[0] in "56789":
        fraction, whole = f".{whole[2:]}", whole[:2]
    percent = Decimal(whole + (fraction or ""))
    if not LOWEST <= percent <= HIGHEST:
        raise TailscopeError(f"'{text}' is not between p1 and p99.99")
    return Target(percent)
