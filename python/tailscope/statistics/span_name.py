"""The span names of a ledger: which one is explained, and each in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailscope.engines.grid import Distribution
from tailscope.errors import LedgerError
from tailscope.ledger.totals import Overview, Total
from tailscope.statistics.target import Target

#: Requests of too many names, together.
OTHERS = "(other)"


@dataclass(frozen=True)
class SpanName:
    """One span name of the ledger in one line."""

    name: str
    spans: float
    rows: int
    p50_ns: float
    target_ns: float
    max_ns: int


def weights_by_name(overview: Overview) -> dict[str, float]:
    """How many spans (weighted) each name has; at least one name has some."""
    weights: dict[str, float] = {}
    for total in overview.totals:
        weights[total.span] = weights.get(total.span, 0.0) + total.weight
    if not weights:
        if overview.left_out:
            raise LedgerError(
                f"none of the ledger's {overview.left_out:,} rows has valid values: "
                "times or weights are negative, null, not numbers or too large"
            )
        raise LedgerError("the ledger is empty: no span was recorded")
    return weights


def choose(overview: Overview, span: str | None) -> str:
    """The span name to explain; a wrong one is answered with the names there are."""
    weights = weights_by_name(overview)
    if span is None:
        # Requests of too many names together are no kind.
        kinds = [name for name in sorted(weights) if name != OTHERS] or [OTHERS]
        return max(kinds, key=lambda name: weights[name])
    if span not in weights:
        names = ", ".join(sorted(weights, key=lambda name: -weights[name])[:20])
        more = f" and {len(weights) - 20} more" if len(weights) > 20 else ""
        raise LedgerError(f"no span is named '{span}'; the ledger has: {names}{more}")
    return span


def name_line(overview: Overview, name: str, walls: Distribution, target: Target) -> SpanName:
    """A span name's counts and percentiles; no percentile is above the maximum."""
    totals = [total for total in overview.totals if total.span == name]
    most = max(total.max_ns for total in totals)
    return SpanName(
        name=name,
        spans=sum(total.weight for total in totals),
        rows=sum(total.rows for total in totals),
        p50_ns=min(walls.value_at(0.5), most),
        target_ns=min(walls.value_at(target.quantile), most),
        max_ns=most,
    )


def length_s(totals: Sequence[Total]) -> float:
    """How long the recordings lasted, from the first span's begin to the last's, in s."""
    ranges: dict[int, tuple[int, int]] = {
        total.ledger: (total.first_ns, total.last_ns) for total in totals
    }
    return sum(last - first for first, last in ranges.values()) / 1e9
