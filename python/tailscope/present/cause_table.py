"""The table of causes: its columns, its cells, and which causes are worth a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tailscope.engines.spans import DOSED
from tailscope.quantity import duration, percent, ratio, span_of_time
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.ranking import Cause

#: Causes below this share of the tail and of the target are summed up in one line. The grid's bins
#: are 0.1 % wide: what is smaller than a few of them is mostly the grid.
SMALL = 0.005


@dataclass(frozen=True)
class Detail:
    """How much is shown: all figures of each cause, and what VarMRI's method found."""

    verbose: bool = False
    impact: bool = False


#: The columns of the table of causes, with their least widths.
COLUMNS = {
    **{"cause": 13, "saves": 8, "95 % interval": 15, "fair": 8, "without": 8, "of tail": 7},
    **{"impact": 6, "spans": 6},
}


def shown_columns(detail: Detail) -> tuple[str, ...]:
    """Two figures by default: what a cause saves, with its interval, and its share of the tail."""
    more = {"fair": detail.verbose, "without": detail.verbose, "spans": detail.verbose}
    more["impact"] = detail.verbose or detail.impact
    return tuple(name for name in COLUMNS if more.get(name, True))


def heads(columns: Iterable[str], has_tail: bool) -> list[str]:
    """The columns' heads; without a tail, a cause's share is of what is beyond the base."""
    return ["of it" if name == "of tail" and not has_tail else name for name in columns]


def cause_cells(cause: Cause) -> dict[str, str]:
    """One cause's figures by their column."""
    return {
        "cause": cause.name,
        "saves": duration(cause.saving.ns),
        "95 % interval": span_of_time(cause.saving),
        "fair": duration(cause.fair_ns) if cause.fair_ns is not None else "–",
        "without": duration(cause.predicted.ns),
        "of tail": percent(cause.share),
        "impact": ratio(cause.ranked_impact),
        "spans": percent(cause.spans_share),
    }


def is_small(cause: Cause, explanation: Explanation) -> bool:
    """Whether a cause plays no part in this tail."""
    return (
        cause.saving.hi <= SMALL * explanation.at_target.ns
        and abs(cause.share or 0.0) < SMALL
        and abs(cause.impact or 0.0) < 0.02
    )


def penalty_words(cause: Cause, explanation: Explanation) -> str:
    """What of a cause's saving is its cache penalty, in words; "" if next to nothing."""
    if cause.perhaps_ns > SMALL * explanation.at_target.ns:
        return f"{duration(cause.perhaps_ns)} of running may go with it: see the interval"
    if cause.cold_ns <= SMALL * explanation.at_target.ns:
        return ""
    if cause.name in DOSED:
        return f"{duration(cause.cold_ns)} of that is outside its handlers, cache penalty included"
    return f"{duration(cause.cold_ns)} of that is its cache penalty"
