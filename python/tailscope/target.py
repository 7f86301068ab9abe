"""Percentiles as people write them: p99, p99.9, p999, 99.9."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tailscope.errors import TailscopeError


@dataclass(frozen=True)
class Target:
    """The percentile to be explained."""

    percent: float

    @property
    def quantile(self) -> float:
        """As a fraction, 0 to 1."""
        return self.percent / 100

    @property
    def name(self) -> str:
        """p99, p99.9."""
        return f"p{self.percent:.12g}"


def parse(text: str) -> Target:
    """A percentile above the median and below the maximum; p999 is read as p99.9."""
    found = re.fullmatch(r"[pP]?(\d+)(\.\d+)?", text.strip())
    if not found:
        raise TailscopeError(f"'{text}' is not a percentile: write p99, p99.9 or the like")
    whole, fraction = found.groups()
    if fraction is None and len(whole) > 2:
        fraction, whole = f".{whole[2:]}", whole[:2]
    percent = float(whole + (fraction or ""))
    if not 50 < percent < 100:
        raise TailscopeError(f"the target must lie between p50 and p100, and '{text}' does not")
    return Target(percent)
