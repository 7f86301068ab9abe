"""A request over time: its gaps, and below them a lane for each CPU with its threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tailscope.present import svg
from tailscope.present.pages.charts.frame import Words, picture
from tailscope.present.pages.units import milliseconds

#: Above the first bar, the height of a bar, of a lane, and of a bar on top of others (px).
TOP, BAR, LANE, ON_TOP = 40.0, 30.0, 58.0, 8.0
#: Left of the bars and right of them (px).
LEFT, RIGHT = 70.0, 10.0
#: A bar narrower than this is drawn this wide, so that it can be seen (px).
LEAST = 0.6

#: The colour of a gap: `late` is what a request should not have to wait for.
STYLES = {
    **{"running": "own", "unknown": "unknown"},
    **dict.fromkeys(("wire", "receive_softirq", "transmit"), "net"),
}


def style(kind: str) -> str:
    """The class of a gap of this kind."""
    return STYLES.get(kind, "late")


class Scale:
    """Where moments lie across."""

    def __init__(self, start: float, end: float, width: float) -> None:
        self.start, self.length = start, max(end - start, 1)
        self.room = width - LEFT - RIGHT

    def x(self, at: float) -> float:
        return LEFT + min(max((at - self.start) / self.length, 0.0), 1.0) * self.room


def bar(x1: float, x2: float, y: float, tall: float, kind: str, name: str) -> Iterator[str]:
    """A bar with a tooltip, and with its name in it where that fits."""
    width = max(x2 - x1, LEAST)
    yield svg.box(x1, y, width, tall, f"lane {kind}", name)
    if tall > 15 and svg.text_width(name) + 12 < width:
        yield svg.label(x1 + 5, y + tall / 2 + 4, name, "inside")


def marks(story: Mapping[str, Any]) -> list[tuple[float, str]]:
    """The moments of a request that have a line, in ns after its start."""
    if story["span"] is not None:
        return [(0, "start"), (story["latency_ns"], "end")]
    found = [(0, "packet" if story["from_packet"] else "start")]
    found += [(story[f"{name}_ns"], name) for name in ("received", "sent", "left")]
    names = {"received": "receive", "sent": "send", "left": "device"}
    found = [(at, names.get(name, name)) for at, name in found]
    return [*found, (story["latency_ns"], "client")] if story["to_client"] else found


def draw(story: Mapping[str, Any], words: Words, width: float) -> str:
    """The picture of one story."""
    seen = story["picture"]
    scale = Scale(seen["from_ns"], seen["to_ns"], width)
    rows = {lane["cpu"]: TOP + LANE * (1 + row) for row, lane in enumerate(seen["cpus"])}
    height = TOP + LANE * (1 + len(rows)) + 20
    parts = [svg.label(0, TOP + 20, "request"), *gaps(story["gaps"], scale)]
    for lane in seen["cpus"]:
        parts += cpu(lane, seen, rows[lane["cpu"]], scale, width)
    tip = f"tip-{width:.0f}"
    parts += arrows(seen["wake_ups"], rows, scale, tip)
    parts += lines(marks(story), scale, height, width)
    return picture(width, height, words, [marker(tip), *parts])


def gaps(found: Sequence[Mapping[str, Any]], scale: Scale) -> Iterator[str]:
    """The request's gaps, without those for which the ones before leave no room."""
    upto = -math.inf
    for gap in found:
        start, end = scale.x(gap["at_ns"]), scale.x(gap["at_ns"] + gap["ns"])
        if end - upto >= LEAST:
            name = f"{milliseconds(gap['ns'])}: {gap['name']}"
            yield from bar(start, end, TOP, BAR, style(gap["kind"]), name)
            upto = max(end, start + LEAST)


def cpu(
    lane: Mapping[str, Any], seen: Mapping[str, Any], y: float, scale: Scale, width: float
) -> Iterator[str]:
    """One CPU: the threads that had it, and what ran on top of them."""
    yield svg.label(0, y + 20, f"CPU {lane['cpu']}")
    yield svg.line(LEFT, y + BAR, width - RIGHT, y + BAR, "edge")
    own = set(seen["threads"])
    for at, ns, tid in lane["threads"]:
        name = seen["names"].get(str(tid), f"thread {tid}")
        kind = "self" if tid in own else "other"
        yield from bar(scale.x(at), scale.x(at + ns), y, BAR, kind, name)
    for at, ns, name in lane["on_top"]:
        yield from bar(scale.x(at), scale.x(at + ns), y, ON_TOP, "top", name)


def marker(name: str) -> str:
    """The tip of an arrow. Each picture has its own: one that isn't shown can't lend it."""
    return (
        f'<defs><marker id="{name}" markerWidth="8" markerHeight="8" refX="7" refY="4" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="currentColor"/></marker></defs>'
    )


def arrows(
    wake_ups: Sequence[Sequence[int]], rows: Mapping[int, float], scale: Scale, tip: str
) -> Iterator[str]:
    """From each wake-up to the moment when the woken thread ran."""
    for at, cpu, runs, on_cpu in wake_ups:
        if cpu not in rows or on_cpu not in rows:
            continue
        x1, x2 = scale.x(at), scale.x(runs)
        y1, y2 = rows[cpu] + BAR, rows[on_cpu] + BAR
        below = max(y1, y2) + 18
        ends = f"M{x1:.1f} {y1:.1f} C{x1:.1f} {below:.1f} {x2:.1f} {below:.1f} {x2:.1f} {y2:.1f}"
        words = f"woken; runs after {milliseconds(runs - at)}"
        yield (
            f'<path class="arrow" marker-end="url(#{tip})" d="{ends}"><title>{words}</title></path>'
        )


def lines(
    moments: Sequence[tuple[float, str]], scale: Scale, height: float, width: float
) -> Iterator[str]:
    """Lines down the picture; labels that would lie on each other share one."""
    free = -math.inf
    for at, name in moments:
        x = scale.x(at)
        yield f"<g><title>{name}</title>{svg.line(x, 24, x, height - 12, 'mark')}</g>"
        long = svg.text_width(name)
        if x > free:
            left = min(x, width - long)
            yield svg.label(left, 18, name)
            free = left + long + 6
