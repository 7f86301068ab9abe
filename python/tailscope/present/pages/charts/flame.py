"""A flame graph: a call a box, as wide as its time in slow spans, below the call that made it.

The more of that time usual spans lack, the stronger the colour.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailscope.present import svg
from tailscope.present.pages.charts.frame import Words, picture
from tailscope.quantity import duration
from tailscope.statistics.flame import Call

#: The height of a row of boxes, and the least width of one that is drawn (px).
STEP, THINNEST = 20.0, 0.7
#: Shades from "as in usual spans" to "only in slow spans".
SHADES = 5


def draw(root: Call, width: float) -> str:
    """The calls below a cause."""
    parts = list(boxes(root, 0.0, width, 0))
    words = Words(
        f"Calls in slow spans under {root.name}",
        "Each box is a call, as wide as its time in slow spans; "
        "strong colours are time that usual spans lack.",
    )
    return picture(width, STEP * depth(root) + 2, words, parts)


def depth(call: Call) -> int:
    """How many rows a call takes, with those below."""
    return 1 + max(map(depth, call.calls), default=0)


def shade(call: Call) -> int:
    """How much of a call's time usual spans lack, in steps from 0."""
    more = max(call.tail_ns - call.usual_ns, 0.0) / max(call.tail_ns, 1e-9)
    return round(more * (SHADES - 1))


def boxes(call: Call, left: float, room: float, row: int) -> Iterator[str]:
    """A call's box, and those of what it called."""
    if room < THINNEST:
        return
    tip = (
        f"{call.name}: {duration(call.tail_ns)} in a slow span, "
        f"{duration(call.usual_ns)} in a usual one"
    )
    top = STEP * row
    # A keyboard reaches each box, and its tip is read aloud.
    yield f'<g tabindex="0" role="img" aria-label="{svg.escape(tip, quote=True)}">'
    yield svg.box(left, top, max(room - 0.6, 0.5), STEP - 1.5, f"flame-{shade(call)}", tip, 2)
    if room > 40:
        yield svg.label(left + 5, top + 13.5, svg.fitted(call.name, room - 12), "call")
    yield "</g>"
    scale = room / max(call.tail_ns, 1e-9)
    for inner in call.calls:
        yield from boxes(inner, left, inner.tail_ns * scale, row + 1)
        left += inner.tail_ns * scale
