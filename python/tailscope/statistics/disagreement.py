"""Where the two methods rank causes differently, and why.

The impact value leaves out whole spans that have much of a cause; the saving takes only the cause's
own time away, from all spans. So they differ where a cause comes along with another, where it is in
many spans but takes little of each, where it is in nearly all spans alike, and where the spans that
it slows are slow for another reason as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tailscope.quantity import duration, percent
from tailscope.statistics.rules import Pair

if TYPE_CHECKING:
    from tailscope.statistics.ranking import Cause

#: The methods differ on a cause where one finds at least this part of the target more than the
#: other, and more than `TIMES` as much.
APART = 0.1
TIMES = 2.0
#: From this overlap or correlation on, two causes come in the same spans.
ALONG = 0.3
#: A cause in at least this part of the spans is everywhere.
EVERYWHERE = 0.5


def disagreements(
    causes: Sequence[Cause], pairs: Sequence[Pair], target_ns: float
) -> tuple[str, ...]:
    """A sentence for each cause on which the two methods disagree."""
    return tuple(sentences(causes, pairs, target_ns))


def sentences(causes: Sequence[Cause], pairs: Sequence[Pair], target_ns: float) -> Iterator[str]:
    """The sentences, in the causes' order."""
    for cause in causes:
        if cause.impact is None or target_ns <= 0:
            continue
        saved, blamed = max(cause.saving.ns, 0.0) / target_ns, max(cause.impact, 0.0)
        if blamed - saved >= APART and blamed > TIMES * saved:
            yield blamed_more(cause, causes, pairs, target_ns)
        elif saved - blamed >= APART and saved > TIMES * blamed:
            yield saved_more(cause, target_ns)


def blamed_more(
    cause: Cause, causes: Sequence[Cause], pairs: Sequence[Pair], target_ns: float
) -> str:
    """Why a cause's impact is larger than what fixing it would save."""
    blame = f"{cause.name} has impact {cause.impact:.2f} but saves {duration(cause.saving.ns)}: "
    if companion := stronger_companion(cause, causes, pairs):
        return (
            f"{blame}it occurs in the same spans as {companion}, so leaving its spans out "
            f"removes {companion} too"
        )
    usual = cause.tail_mean_ns - cause.median_mean_ns
    if usual < APART * target_ns:
        return (
            f"{blame}it is in {percent(cause.spans_share)} of the spans but takes only "
            f"{duration(cause.tail_mean_ns)} of a slow one: its spans are slow for another reason"
        )
    return (
        f"{blame}without it, other causes still make as many spans slow; it saves its fair "
        "share only together with them"
    )


def saved_more(cause: Cause, target_ns: float) -> str:
    """Why fixing a cause would save more than its impact says."""
    save = f"{cause.name} saves {duration(cause.saving.ns)} but has impact {cause.impact:.2f}: "
    if cause.spans_share >= EVERYWHERE:
        return (
            f"{save}it is in {percent(cause.spans_share)} of the spans, so no small "
            "set of spans stands for it; fixing it makes all of them faster"
        )
    return (
        f"{save}the spans with much of it, from {duration(float(cause.high_from_ns or 0))}, are "
        "too few for the tail; the many spans with less of it make the tail"
    )


def stronger_companion(cause: Cause, causes: Sequence[Cause], pairs: Sequence[Pair]) -> str | None:
    """The cause that comes along with this one and saves most, if it saves more."""
    partners = {
        other
        for pair in pairs
        if cause.name in pair.events and max(pair.overlap, pair.correlation or 0.0) >= ALONG
        for other in pair.events
    } - {cause.name}
    stronger = [
        other for other in causes if other.name in partners and other.saving.ns > cause.saving.ns
    ]
    return max(stronger, key=lambda other: other.saving.ns).name if stronger else None
