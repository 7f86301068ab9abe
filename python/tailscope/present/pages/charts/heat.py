"""Two rates together, as a map: the stronger the colour, the more pairs of samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis, quantile
from tailscope.present.pages.charts.frame import NARROW, Frame, Words, picture
from tailscope.present.pages.units import whole

#: Both rates of a cell's middle, and how many pairs it has.
Joint = Sequence[tuple[float, float, int]]

#: The share of the pairs that may lie beyond each side of the map.
OUTSIDE = 0.0005
#: Shades, from few pairs to many.
SHADES = 8
#: More cells are joined: the map would look the same, and the page be longer.
MOST_CELLS = 4_000
#: A square of the key, and the room for the key below the map (px).
KEY, KEY_ROOM = 13.0, 26.0


def axis(values: Sequence[tuple[float, int]]) -> Axis | None:
    """The axis of one of the rates: logarithmic, as its cells are; None if it never grew."""
    ordered = sorted(values)
    positive = [value for value in ordered if value[0] > 0]
    if not positive:
        return None
    low, high = quantile(positive, OUTSIDE), quantile(positive, 1 - OUTSIDE)
    # To the edges of the outermost cells, and a little further.
    return Axis.ratio(low / 1.15, high * 1.15, ordered[0][0] <= 0)


def axes(cells: Joint) -> tuple[Axis, Axis] | None:
    """Both axes; None if one of the rates never grew."""
    across = axis([(x, pairs) for x, _, pairs in cells])
    up = axis([(y, pairs) for _, y, pairs in cells])
    return (across, up) if across and up else None


def outside(cells: Joint) -> int:
    """How many pairs lie beyond the map's edges."""
    found = axes(cells)
    if found is None:
        return 0
    return sum(n for x, y, n in cells if not (found[0].holds(x) and found[1].holds(y)))


def edges(rate: float, each: int) -> tuple[float, float]:
    """From where to where the cell of a rate goes, if each doubling is cut into `each` cells."""
    if rate <= 0:
        return 0.0, 0.0
    doubling = 2.0 ** math.floor(math.log2(rate))
    step = doubling / each
    low = doubling + (rate - doubling) // step * step
    return low, low + step


def spots(cells: Joint, frame: Frame) -> list[tuple[float, float, float, float, int]]:
    """Left, top, width and height (px) of each cell with its pairs; joined where they are many."""
    inside = [cell for cell in cells if frame.across.holds(cell[0]) and frame.up.holds(cell[1])]
    joined: dict[tuple[float, float], tuple[float, float, int]] = {}
    for each in (8, 4, 2, 1):
        joined = {}
        for x, y, pairs in inside:
            key = edges(x, each)[0], edges(y, each)[0]
            first = joined.get(key, (x, y, 0))
            joined[key] = (first[0], first[1], first[2] + pairs)
        if len(joined) <= MOST_CELLS or each == 1:
            return [(*spot(x, y, each, frame), pairs) for x, y, pairs in joined.values()]
    return []


def spot(x: float, y: float, each: int, frame: Frame) -> tuple[float, float, float, float]:
    """A cell's place. Zero has no length on its axis, so it gets one."""
    left, right = (frame.x(edge) for edge in edges(x, each))
    bottom, top = (frame.y(edge) for edge in edges(y, each))
    right = right if right - left >= 1 else left + 7
    top = top if bottom - top >= 1 else bottom - 7
    return left, top, right - left, bottom - top


def draw(names: Sequence[str], cells: Joint, words: Words, width: float) -> str:
    """The map; empty if one of the rates never grew."""
    found = axes(cells)
    if found is None:
        return ""
    frame = Frame(width, *found, height=420.0 if width > NARROW else 330.0)
    parts = frame.grid(*(f"{name}, counts a second" for name in names[:2]))
    seen = spots(cells, frame)
    most = max((pairs for *_, pairs in seen), default=1)
    shades = [""] * SHADES
    for left, top, wide, tall, pairs in seen:
        part = math.log(pairs) / max(math.log(most), 1e-9)
        shade = min(int(part * SHADES), SHADES - 1)
        shades[shade] += f"M{left:.1f} {top:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z"
    for shade, letters in enumerate(shades):
        if letters:
            parts.append(f'<path class="heat" fill-opacity="{opacity(shade):.2f}" d="{letters}"/>')
    parts += key(frame, most)
    return picture(width, frame.height + KEY_ROOM, words, parts)


def opacity(shade: int) -> float:
    """How strong a shade is, from 0 to 1."""
    return 0.12 + 0.88 * shade / (SHADES - 1)


def key(frame: Frame, most: int) -> Iterator[str]:
    """What the shades mean."""
    top = frame.height + 8
    yield svg.label(frame.left, top + 9, "1 pair", "tick")
    start = frame.left + svg.text_width("1 pair") + 6
    for shade in range(SHADES):
        yield (
            f'<rect class="heat" fill-opacity="{opacity(shade):.2f}" x="{start + KEY * shade:.1f}" '
            f'y="{top:.1f}" width="{KEY}" height="10"/>'
        )
    yield svg.label(start + KEY * SHADES + 6, top + 9, f"{whole(most)} pairs", "tick")
