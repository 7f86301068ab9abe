"""Curves: how values are distributed, what a value was over time, and how many were as long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis, Cells, quantile
from tailscope.present.pages.charts.frame import Frame, Words, picture
from tailscope.quantity import duration

#: The quantiles that have a dot and a label.
LABELLED = ((0.5, "p50"), (0.99, "p99"))
#: Steps smaller than this can't be seen (px).
VISIBLE = 0.4

#: The start of a slice in seconds, and its value; None: it has none.
Slices = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Distribution:
    """Which share of values is at or below each, and perhaps another distribution behind it."""

    words: Words
    #: What the values are, and in which unit.
    across: str
    up: str
    style: str
    cells: Cells
    #: The share of all values that may lie beyond each end of the axis.
    outside: float
    #: A value in words.
    shown: Callable[[float], str]
    #: The cells behind, with their name.
    behind: tuple[Cells, str] | None = None
    #: A value that the user asked for, with its name.
    goal: tuple[float, str] | None = None

    @property
    def axis(self) -> Axis | None:
        """The axis across; None if there is nothing to draw."""
        return Axis.of(self.cells, self.outside)

    @property
    def beyond(self) -> int:
        """How many values lie beyond the right edge."""
        axis = self.axis
        return sum(count for value, count in self.cells if axis and value > axis.high)

    def draw(self, width: float) -> str:
        """The picture."""
        axis = self.axis
        if axis is None:
            return ""
        frame = Frame(width, axis, Axis.linear(0, 100))
        parts = frame.grid(self.across, self.up)
        if self.goal and axis.holds(self.goal[0]):
            parts += goal(frame, *self.goal)
        if self.behind:
            cells, name = self.behind
            parts.append(svg.path(steps(cells, frame), "curve dashed", name))
        parts.append(svg.path(steps(self.cells, frame), f"curve {self.style}", self.words.name))
        parts += self.quantiles(frame)
        return picture(width, frame.height, self.words, parts)

    def quantiles(self, frame: Frame) -> list[str]:
        """Dots at the labelled quantiles."""
        parts = []
        for share, name in LABELLED:
            value = quantile(self.cells, share)
            if not frame.across.holds(value):
                continue
            x, y = frame.at(value, 100 * share)
            text = f"{name} {self.shown(value)}"
            # Left of the dot and above the curve where there is room; else below it to the right.
            before = x - svg.text_width(text) - 14 > frame.left
            dx, dy, anchor = (-9, -6, "end") if before else (9, 16, "start")
            parts.append(svg.dot(min(x, frame.right), y, "ink"))
            parts.append(svg.label(x + dx, y + dy, text, "value", anchor))
        return parts


def goal(frame: Frame, value: float, name: str) -> list[str]:
    """A line at a value, with its name on the side that has room."""
    at = frame.x(value)
    fits = at + svg.text_width(name) + 12 < frame.width
    shift, anchor = (6, "start") if fits else (-6, "end")
    return [
        svg.line(at, frame.top, at, frame.bottom, "goal"),
        svg.label(at + shift, frame.bottom - 8, name, "row", anchor),
    ]


def steps(cells: Cells, frame: Frame) -> list[tuple[float, float]]:
    """The share at or below each value, as a staircase."""
    total, below = max(sum(count for _, count in cells), 1), 0
    points = [(frame.left, frame.bottom)]
    for value, count in cells:
        before = frame.y(100 * below / total)
        below += count
        after = frame.y(100 * below / total)
        if value > frame.across.high:
            break
        x, (last_x, last_y) = frame.x(value), points[-1]
        if x - last_x >= VISIBLE:
            points.append((x, before))
        if x - last_x >= VISIBLE or last_y - after >= VISIBLE or below == total:
            points.append((x, after))
    return [*points, (frame.right, points[-1][1])]


def course(
    words: Words, up: str, style: str, slices: Slices, seconds: float, least: float, width: float
) -> str:
    """What a value was over time, a step for each slice; the axis reaches at least to `least`."""
    known = [value for _, value in slices if value is not None]
    if not known:
        return ""
    height = Axis.linear(0, max(max(known) * 1.06, least))
    frame = Frame(width, Axis.linear(0, seconds), height)
    parts = frame.grid("seconds", up)
    for run in runs(slices, seconds):
        points = [frame.at(at, value) for start, end, value in run for at in (start, end)]
        parts.append(svg.path(points, f"curve {style}", words.name))
    return picture(width, frame.height, words, parts)


def runs(slices: Slices, seconds: float) -> list[list[tuple[float, float, float]]]:
    """Slices with a value that follow each other: start, end and value of each."""
    found: list[list[tuple[float, float, float]]] = [[]]
    ends = [*(start for start, _ in slices[1:]), seconds]
    for (start, value), end in zip(slices, ends, strict=True):
        if value is None:
            found.append([])
        else:
            found[-1].append((start, max(start, end), value))
    return [run for run in found if run]


def at_least(words: Words, cells: Cells, low: float, up: str, width: float) -> str:
    """How many of some times (ns) were at least this long; both axes are logarithmic."""
    total, (longest, last) = sum(count for _, count in cells), cells[-1]
    x = Axis.ratio(min(low, cells[0][0]), max(longest, 2 * low) * 1.15)
    frame = Frame(width, x, Axis.ratio(0.7, total * 1.3), written=round_time)
    parts, left = frame.grid("", up), total
    points = [(frame.left, frame.y(left))]
    for value, count in cells:
        points.append((frame.x(value), frame.y(left)))
        left -= count
        points.append((frame.x(value), frame.y(left) if left > 0 else frame.bottom))
    parts.append(svg.path(points, "curve measured", words.name))
    parts.append(svg.dot(*frame.at(longest, last), "ink"))
    return picture(width, frame.height, words, parts)


def round_time(ns: float) -> str:
    """A tick's length of time: `20 µs`, `1 ms`."""
    return duration(ns).replace(".00 ", " ").replace(".0 ", " ")
