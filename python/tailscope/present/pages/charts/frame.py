"""Two axes, their labels, and the room between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis

#: The widths for which pictures are drawn: a desk's, half of it, and a phone's.
WIDE, HALF, NARROW = 1000.0, 480.0, 346.0
TOP, BOTTOM, RIGHT = 36.0, 44.0, 16.0
#: Labels closer than this (px) share their place.
APART = 8.0


@dataclass(frozen=True)
class Words:
    """What a picture says to readers who can't see it: its name, and what it shows."""

    name: str
    about: str


def picture(width: float, height: float, words: Words, parts: Sequence[str]) -> str:
    """A whole picture."""
    return svg.picture(width, height, words.name, parts, words.about)


def drawn(draw: Callable[[float], str], wide: float, narrow: float = NARROW) -> Markup:
    """A picture twice, for a desk and for a phone. The style sheet shows one of them."""
    # `svg` escapes all texts of a picture.
    return Markup(f'<div class="wide">{draw(wide)}</div><div class="narrow">{draw(narrow)}</div>')


class Frame:
    """Axes from left to right and from below to above, in a picture of a width."""

    def __init__(
        self,
        width: float,
        x: Axis,
        y: Axis,
        height: float | None = None,
        written: Callable[[float], str] | None = None,
    ) -> None:
        """`written` labels the values across; without it, they are plain numbers."""
        self.width = width
        self.height = height or (240.0 if width < 400 else 270.0)
        self.left = max((svg.text_width(text) for _, text in y.ticks(5)), default=0.0) + 14
        self.right = width - RIGHT
        self.top, self.bottom = TOP, self.height - BOTTOM
        self.across, self.up, self.written = x, y, written

    def x(self, value: float) -> float:
        return self.left + self.across.place(value) * (self.right - self.left)

    def y(self, value: float) -> float:
        return self.bottom - self.up.place(value) * (self.bottom - self.top)

    def at(self, x: float, y: float) -> tuple[float, float]:
        return self.x(x), self.y(y)

    def grid(self, across: str, up: str) -> list[str]:
        """Lines at round values, their labels, and the units of both axes."""
        parts = []
        for value, text in self.up.ticks(5):
            y = self.y(value)
            parts.append(svg.line(self.left, y, self.right, y, "grid"))
            parts.append(svg.label(self.left - 8, y + 4, text, "tick", "end"))
        free = -math.inf
        for value, text in self.across.ticks(int(self.width / 85)):
            x = self.x(value)
            text = self.written(value) if self.written else text
            parts.append(svg.line(x, self.bottom, x, self.bottom + 4, "edge"))
            half = svg.text_width(text) / 2
            middle = min(x, self.width - half)  # no label stands out at the right
            if middle - half >= free:
                parts.append(svg.label(middle, self.bottom + 18, text, "tick", "middle"))
                free = middle + half + APART
        parts.append(svg.line(self.left, self.bottom, self.right, self.bottom, "edge"))
        parts.append(svg.label(0, 12, up, "axis"))
        parts.append(svg.label(self.right, self.height - 6, across, "axis", "end"))
        return parts
