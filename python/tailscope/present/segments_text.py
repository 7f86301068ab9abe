"""The segments for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tailscope.present.cause_table import Detail, cause_cells, heads, shown_columns
from tailscope.present.diff_text import causes
from tailscope.present.pages.charts.explanation import clock
from tailscope.present.terminal import DIM, Terminal
from tailscope.quantity import count, duration, percent
from tailscope.statistics.segments import Segments
from tailscope.statistics.target import Target

SEGMENT_WIDTHS = (10, 12, 10, 10, 12)
#: The columns of the causes within a segment, with their least widths.
COLUMNS = {"cause": 13, "saves": 9, "95 % interval": 15, "fair": 9, "of tail": 8, "impact": 7}
#: Causes of the typical segment that are shown.
SHOWN = 5
#: A cause below this share of the typical segment's tail is not shown.
SMALL = 0.02


def render(found: Segments, target: Target, terminal: Terminal, detail: Detail) -> Iterator[str]:
    """All of it, as lines."""
    left_out = f", {found.too_few} more with too few spans" if found.too_few else ""
    yield from terminal.wrapped(
        f"{len(found.segments)} segments of {clock(found.length_s)}{left_out}: their {target.name} "
        f"varies by {percent(found.variation)} (standard deviation over mean)"
    )
    rows = [("segment", "starts at", "p50", target.name, "spans")]
    for name in ("best", "typical", "worst"):
        segment = getattr(found, name)
        rows.append(
            (
                name,
                clock(segment.start_s),
                duration(segment.p50_ns),
                duration(segment.target_ns),
                count(segment.spans),
            )
        )
    yield from with_head(terminal.table(rows, SEGMENT_WIDTHS), terminal)
    yield ""
    yield from within(found, target, terminal, detail)
    yield ""
    yield from across(found, target, terminal)


def with_head(lines: Sequence[str], terminal: Terminal) -> Iterator[str]:
    """A table whose first line is its head."""
    before, after = terminal.paint(DIM)
    yield before + lines[0] + after
    yield from lines[1:]


def within(found: Segments, target: Target, terminal: Terminal, detail: Detail) -> Iterator[str]:
    """Why the typical segment has a tail."""
    typical = found.typical
    longer = f"{duration(typical.target_ns - typical.p50_ns)} above the median"
    if not target.has_tail:
        longer = f"{duration(typical.target_ns)}, compared with the least of each cause"
    shown = [
        cause
        for cause in found.within
        if cause.saving.ns > SMALL * typical.target_ns or abs(cause.share or 0.0) > SMALL
    ][:SHOWN]
    text = f"within the typical segment {target.name} is {longer}"
    if not shown:
        yield from terminal.wrapped(f"{text}; no cause stands out")
        return
    yield from terminal.wrapped(f"{text}:")
    columns = [name for name in shown_columns(detail) if name in COLUMNS]
    rows = [
        heads(columns, target.has_tail),
        *([cause_cells(cause)[name] for name in columns] for cause in shown),
    ]
    widths = [COLUMNS[name] for name in columns]
    yield from with_head(terminal.table(rows, widths), terminal)


def across(found: Segments, target: Target, terminal: Terminal) -> Iterator[str]:
    """What makes the worst segment worse than the typical one."""
    if found.across is None:
        text = f"the worst segment is the typical one: {target.name} is similar in all"
        yield from terminal.wrapped(text)
        return
    more = duration(found.worst.target_ns - found.typical.target_ns)
    sure = "" if found.across.target.is_sure else ", which may be chance"
    yield from terminal.wrapped(
        f"in the worst segment {target.name} is {more} above the typical{sure}:"
    )
    yield from causes(found.across, terminal, ("typical", "worst"))
