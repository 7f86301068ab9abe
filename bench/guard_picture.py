"""A picture of the largest latency of each iteration, without guard and with it, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

#: Size of one hazard's panel, and the room around it, in px.
WIDTH, HEIGHT, LEFT, TOP, GAP = 860, 200, 70, 56, 70
DIRECT, GUARDED = "#c2410c", "#0f766e"
STYLE = "text{font:13px sans-serif;fill:#333} .grid{stroke:#ddd} svg{background:#fff}"

Pairs = Sequence[tuple[float, float]]


def drawn(largest: dict[str, Pairs]) -> str:
    """The picture. `largest`: for each hazard and iteration, ms without guard and with it."""
    every = [value for pairs in largest.values() for pair in pairs for value in pair]
    low = 10 ** math.floor(math.log10(min(every)))
    high = 10 ** math.ceil(math.log10(max(every)))
    height = TOP + len(largest) * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}">',
        f"<style>{STYLE}</style>",
        *_legend(),
    ]
    for at, (name, pairs) in enumerate(largest.items()):
        parts += _panel(name, pairs, TOP + at * (HEIGHT + GAP), low, high)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    words = "Largest latency of each iteration, in ms, on a logarithmic scale"
    parts = [f'<text x="{LEFT}" y="20" font-weight="bold">{words}</text>']
    for x, colour, name in ((LEFT + 470, DIRECT, "one replica"), (LEFT + 600, GUARDED, "guard")):
        parts.append(f'<rect x="{x}" y="10" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="20">{name}</text>')
    return parts


def _panel(name: str, pairs: Pairs, top: float, low: float, high: float) -> list[str]:
    decades = math.log10(high / low) or 1

    def y(value: float) -> float:
        return top + HEIGHT - HEIGHT * math.log10(value / low) / decades

    parts = [f'<text x="{LEFT}" y="{top - 8}">{escape(name)}</text>']
    for step in range(round(decades) + 1):
        value = low * 10**step
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{LEFT + WIDTH}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}"/>'
            f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    room = WIDTH / len(pairs)
    for at, pair in enumerate(pairs):
        for side, (value, colour) in enumerate(zip(pair, (DIRECT, GUARDED), strict=True)):
            x = LEFT + at * room + room * (0.15 + 0.36 * side)
            parts.append(
                f'<rect x="{x:.1f}" y="{y(value):.1f}" width="{room * 0.34:.1f}" '
                f'height="{top + HEIGHT - y(value):.1f}" fill="{colour}">'
                f"<title>{value:.2f} ms</title></rect>"
            )
        parts.append(
            f'<text x="{LEFT + (at + 0.5) * room:.1f}" y="{top + HEIGHT + 18}" '
            f'text-anchor="middle">{at + 1}</text>'
        )
    return parts
