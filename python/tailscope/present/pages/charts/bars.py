"""Values of tags: a bar for each one's share, and beside it a dot for each counter's rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis
from tailscope.present.pages.charts.frame import NARROW, Words, picture
from tailscope.present.pages.units import brief_rate, share

#: The height of a row, and of what is above the rows (px).
STEP, HEAD = 26.0, 40.0
#: Between two columns (px).
GAP = 34.0
#: The colours of the counters, in their order.
COLOURS = ("one", "two", "three", "four")


@dataclass(frozen=True)
class Row:
    """A value of the tags, or a function."""

    name: str
    #: The share of the samples that saw it, 0 to 1.
    share: float
    samples: int
    #: For each counter, its mean rate and the standard deviation as far as it is known.
    rates: tuple[tuple[float, float | None] | None, ...]

    def rate(self, counter: int) -> tuple[float, float | None] | None:
        """A counter's rate; None where it is unknown."""
        return self.rates[counter] if counter < len(self.rates) else None


@dataclass(frozen=True)
class Columns:
    """From where to where each column goes (px)."""

    names: float
    shares: tuple[float, float]
    rates: list[tuple[float, float]]

    @classmethod
    def of(cls, width: float, counters: int, longest: float) -> Columns:
        """A phone has room for one counter; names have lines of their own there."""
        if width <= NARROW:
            return cls(width, (0.0, width * 0.37), [(width * 0.58, width - 8)][:counters])
        names = min(longest, width * 0.3)
        left = names + 14
        each = (width - left) / (counters + 1)
        starts = [left + each * number for number in range(1, counters + 1)]
        return cls(names, (left, left + each - GAP - 46), [(x, x + each - GAP) for x in starts])


def draw(rows: Sequence[Row], counters: Sequence[str], words: Words, width: float) -> str:
    """The picture of some rows."""
    narrow = width <= NARROW
    step, down = (2 * STEP - 8, 20.0) if narrow else (STEP, 0.0)
    longest = max([60.0, *(svg.text_width(row.name) for row in rows)])
    columns = Columns.of(width, len(counters), longest)
    most = max([1e-9, *(row.share for row in rows)])
    start, end = columns.shares
    parts = [svg.label(start, 12, "% of the samples", "axis")]
    for number, place in enumerate(columns.rates):
        title = svg.fitted(f"{counters[number]}, /s", place[1] - place[0] + (8 if narrow else 30))
        parts.append(svg.label(place[0], 12, title, "axis"))
        parts += rates(rows, number, place, step, down)
    for number, row in enumerate(rows):
        top = HEAD + step * number
        name = svg.fitted(row.name, columns.names)
        x, y, anchor = (0.0, top + 13, "start") if narrow else (columns.names, top + 14, "end")
        parts.append(svg.label(x, y, name, "row", anchor))
        long = (end - start) * row.share / most
        tip = f"{row.name}: {share(row.share)} of the samples"
        parts.append(svg.box(start, top + down + 2, max(long, 1.0), 15, "f-ink", tip, 2))
        parts.append(svg.label(start + long + 6, top + down + 14, share(row.share), "value"))
    return picture(width, HEAD + step * len(rows) + 4, words, parts)


def rates(
    rows: Sequence[Row], number: int, place: tuple[float, float], step: float, down: float
) -> list[str]:
    """One counter's rates: a dot at the mean, and a band of one standard deviation."""
    start, end = place
    known = [rate for row in rows if (rate := row.rate(number))]
    highest = max([0.0, *(mean + (deviation or 0) for mean, deviation in known)])
    axis = Axis.linear(0, highest * 1.02)
    bottom = HEAD + step * len(rows)

    def x(value: float) -> float:
        return start + axis.place(value) * (end - start)

    parts = []
    for value, text in axis.ticks(int((end - start) / 60)):
        parts.append(svg.line(x(value), HEAD - 4, x(value), bottom, "grid"))
        parts.append(svg.label(x(value), HEAD - 10, text, "tick", "middle"))
    colour = COLOURS[number % len(COLOURS)]
    for line, row in enumerate(rows):
        y = HEAD + step * line + 9.5 + down
        rate = row.rate(number)
        if rate is None:
            parts.append(svg.label(start, y + 4, "unknown", "tick"))
            continue
        mean, deviation = rate
        if deviation is not None:
            low, high = x(max(mean - deviation, 0.0)), x(mean + deviation)
            parts.append(svg.line(low, y, high, y, f"spread s-{colour}"))
        parts.append(svg.dot(x(mean), y, f"f-{colour}"))
        tip = f"{row.name}: {brief_rate(mean)}"
        parts.append(svg.box(start, y - 10, end - start, 20, "hover", tip, 2))
    return parts
