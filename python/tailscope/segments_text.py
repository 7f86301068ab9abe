"""The segments for the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.charts import clock
from tailscope.diff_text import causes
from tailscope.quantity import count, duration, percent, ratio, span_of_time
from tailscope.segments import Segments
from tailscope.target import Target
from tailscope.text import DIM, aligned, paint, wrapped

SEGMENT_WIDTHS = (10, 12, 10, 10, 12)
CAUSE_WIDTHS = (13, 9, 15, 9, 8, 7)
#: Causes of the typical segment that are shown.
SHOWN = 5
#: A cause below this share of the typical segment's tail is not shown.
SMALL = 0.02


def render(found: Segments, target: Target, coloured: bool) -> Iterator[str]:
    """All of it, as lines."""
    start, end = paint(DIM, coloured)
    left_out = f", {found.too_few} more with too few spans" if found.too_few else ""
    yield from wrapped(
        f"{len(found.segments)} segments of {clock(found.length_s)}{left_out}: their {target.name} "
        f"varies by {percent(found.variation)} (standard deviation over mean)"
    )
    header = ("segment", "begins at", "p50", target.name, "spans")
    yield start + aligned(header, SEGMENT_WIDTHS) + end
    for name in ("best", "typical", "worst"):
        segment = getattr(found, name)
        cells = (
            name,
            clock(segment.start_s),
            duration(segment.p50_ns),
            duration(segment.target_ns),
            count(segment.spans),
        )
        yield aligned(cells, SEGMENT_WIDTHS)
    yield ""
    yield from within(found, target, coloured)
    yield ""
    yield from across(found, target, coloured)


def within(found: Segments, target: Target, coloured: bool) -> Iterator[str]:
    """Why the typical segment has a tail."""
    typical = found.typical
    longer = f"{duration(typical.target_ns - typical.p50_ns)} above the median"
    if not target.has_tail:
        longer = f"{duration(typical.target_ns)}, held against the least of each cause"
    shown = [
        cause
        for cause in found.within
        if cause.saving.ns > SMALL * typical.target_ns or abs(cause.share or 0.0) > SMALL
    ][:SHOWN]
    text = f"within the typical segment {target.name} is {longer}"
    if not shown:
        yield from wrapped(f"{text}; no cause stands out")
        return
    yield from wrapped(f"{text}:")
    start, end = paint(DIM, coloured)
    part = "of tail" if target.has_tail else "of it"
    header = ("cause", "saves", "95 % interval", "fair", part, "impact")
    yield start + aligned(header, CAUSE_WIDTHS) + end
    for cause in shown:
        cells = (
            cause.name,
            duration(cause.saving.ns),
            span_of_time(cause.saving),
            duration(cause.fair_ns) if cause.fair_ns is not None else "–",
            percent(cause.share),
            ratio(cause.ranked_impact),
        )
        yield aligned(cells, CAUSE_WIDTHS)


def across(found: Segments, target: Target, coloured: bool) -> Iterator[str]:
    """What makes the worst segment worse than the typical one."""
    if found.across is None:
        yield from wrapped(f"the worst segment is the typical one: {target.name} is alike in all")
        return
    more = duration(found.worst.target_ns - found.typical.target_ns)
    sure = "" if found.across.target.is_sure else ", which may be chance"
    yield from wrapped(f"in the worst segment {target.name} is {more} above the typical{sure}:")
    yield from causes(found.across, coloured, ("typical", "worst"))
