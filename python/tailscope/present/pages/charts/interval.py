"""An effect as a dot on its 95 % interval, with zero and the budget."""

from __future__ import annotations

from tailscope.present import svg
from tailscope.present.pages.charts.axis import Axis
from tailscope.present.pages.charts.frame import Words, picture
from tailscope.present.pages.units import share

HEIGHT, MIDDLE, BASE, SIDE = 112.0, 58.0, 80.0, 26.0


def draw(
    effect: float, low: float, high: float, budget: float | None, words: Words, width: float
) -> str:
    """The share (0 to 1) by which the application was slower, below 0 if it was faster."""
    shares = (effect, low, high, 0.0, budget or 0.0)
    least, most = 100 * min(shares), 100 * max(shares)
    air = max((most - least) * 0.12, 0.05)
    axis = Axis.linear(least - air, most + air)

    def x(value: float) -> float:
        return SIDE + axis.place(100 * value) * (width - 2 * SIDE)

    parts = [svg.line(SIDE, BASE, width - SIDE, BASE, "edge")]
    for value, text in axis.ticks(int(width / 110)):
        at = x(value / 100)
        parts.append(svg.line(at, BASE, at, BASE + 4, "edge"))
        text = f"{text} %".replace("-", "\u2212")
        parts.append(svg.label(at, BASE + 18, text, "tick", "middle"))
    parts.append(svg.line(x(0), 8, x(0), BASE, "zero"))
    parts.append(svg.label(x(0) - 5, 16, "no effect", "row", "end"))
    if budget is not None:
        parts.append(svg.line(x(budget), 8, x(budget), BASE, "goal"))
        parts.append(svg.label(x(budget) + 5, 16, "budget", "row"))
    parts.append(svg.line(x(low), MIDDLE, x(high), MIDDLE, "interval"))
    parts.append(svg.dot(x(effect), MIDDLE, "ink"))
    text = f"{share(abs(effect))} {'faster' if effect < 0 else 'slower'}"
    half = svg.text_width(text) / 2 + 6
    middle = min(max(x(effect), half), width - half)
    parts.append(svg.label(middle, MIDDLE - 12, text, "worth", "middle"))
    return picture(width, HEIGHT, words, parts)
