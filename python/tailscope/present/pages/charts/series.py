"""Several series of points over sizes or the like: each point with its 95 % interval."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis
from tailscope.present.pages.charts.frame import Frame, Words, picture


@dataclass(frozen=True)
class Point:
    """A value, with its interval if that is known."""

    at: float
    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """The interval; without one, the value itself."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high


@dataclass(frozen=True)
class Series:
    """Points of one colour, joined by a line."""

    name: str
    #: `one`, `two`, `three` or `four`, as the style sheet has them.
    colour: str
    points: Sequence[Point]


@dataclass(frozen=True)
class Chart:
    """Series over an axis of ratios."""

    words: Words
    #: What the values are, and in which unit.
    across: str
    up: str
    series: Sequence[Series]
    #: Lines across the picture at places of the lower axis, each with its name.
    marks: Sequence[tuple[float, str]] = ()
    #: A line from left to right, and its name.
    level: tuple[float, str] | None = None
    #: A tick of the lower axis in words; the axis is one of sizes of memory then.
    written: Callable[[float], str] | None = None

    def draw(self, width: float) -> str:
        """The picture; empty without points."""
        points = [point for one in self.series for point in one.points]
        if not points:
            return ""
        frame = Frame(width, self.below(points), self.left(points), written=self.written)
        parts = frame.grid(self.across, self.up)
        for at, name in self.marks:
            if frame.across.holds(at):
                parts.append(svg.line(frame.x(at), frame.top, frame.x(at), frame.bottom, "goal"))
                parts.append(svg.label(frame.x(at) + 5, frame.top + 10, name, "row"))
        if self.level and frame.up.holds(self.level[0]):
            y = frame.y(self.level[0])
            parts.append(svg.line(frame.left, y, frame.right, y, "goal"))
            parts.append(svg.label(frame.left + 6, y + 15, self.level[1], "row"))
        for one in self.series:
            parts += line(frame, one)
        return picture(width, frame.height, self.words, parts)

    def below(self, points: Sequence[Point]) -> Axis:
        """The axis across, which holds the points and the marks just beyond them."""
        ats = [point.at for point in points]
        axis = Axis.ratio(min(ats) / 1.15, max(ats) * 1.3)
        return replace(axis, binary=self.written is not None)

    def left(self, points: Sequence[Point]) -> Axis:
        """The axis up: from zero, unless values are too far apart for that."""
        ends = [end for point in points for end in point.ends]
        if self.level:
            ends.append(self.level[0])
        low, high = min(ends), max(ends)
        if low > 0 and high / low > 12:
            return Axis.ratio(low / 1.2, high * 1.2)
        return Axis.linear(min(0.0, low), high * 1.1)


def line(frame: Frame, one: Series) -> list[str]:
    """One series: its line, its intervals and its dots."""
    places = [frame.at(point.at, point.value) for point in one.points]
    parts = [svg.path(places, f"curve s-{one.colour}", one.name)] if len(places) > 1 else []
    for point, (x, y) in zip(one.points, places, strict=True):
        low, high = map(frame.y, point.ends)
        if low != high:
            parts.append(svg.line(x, low, x, high, f"spread s-{one.colour}"))
        parts.append(svg.dot(x, y, f"f-{one.colour}"))
    return parts
