"""What the rows of a ledger add up to, by recording and span name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Total:
    """What one span name adds up to in one recording."""

    ledger: int
    span: str
    rows: int
    #: Those of them that stand for one span.
    single: int
    weight: float
    first_ns: int
    last_ns: int
    min_ns: int
    max_ns: int


@dataclass(frozen=True)
class Overview:
    """All span names of a ledger, and how many rows make no sense and are left out."""

    totals: tuple[Total, ...]
    rows: int
    left_out: int
