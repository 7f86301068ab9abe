"""Elements of SVG: numbers short, text escaped, colours by class so that they follow the theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

#: The width of a letter of the pictures' text, about (px).
LETTER = 6.4


def short(value: float) -> str:
    """A coordinate with one decimal at most."""
    return f"{value:.1f}".removesuffix(".0")


def line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    """A straight line of a class."""
    ends = f'x1="{short(x1)}" y1="{short(y1)}" x2="{short(x2)}" y2="{short(y2)}"'
    return f'<line class="{style}" {ends}/>'


def label(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    """Text whose baseline begins, ends or is centred at a point."""
    where = f'x="{short(x)}" y="{short(y)}"'
    return f'<text class="{style}" {where} text-anchor="{anchor}">{escape(text)}</text>'


def box(
    x: float, y: float, width: float, height: float, style: str, tip: str = "", radius: float = 0
) -> str:
    """A filled rectangle, with a tooltip if one is given."""
    size = f'x="{short(x)}" y="{short(y)}" width="{width:.2f}" height="{height:.2f}"'
    round_ = f' rx="{short(radius)}"' if radius else ""
    if tip:
        return f'<rect class="{style}" {size}{round_}><title>{escape(tip)}</title></rect>'
    return f'<rect class="{style}" {size}{round_}/>'


def dot(x: float, y: float, style: str) -> str:
    """A point worth looking at."""
    return f'<circle class="{style}" cx="{short(x)}" cy="{short(y)}" r="4"/>'


def path(points: Sequence[tuple[float, float]], style: str, tip: str = "") -> str:
    """A line through points."""
    steps = "L".join(f"{short(x)} {short(y)}" for x, y in points)
    return f'<path class="{style}" d="M{steps}"><title>{escape(tip)}</title></path>'


def picture(width: float, height: float, words: str, parts: Sequence[str], about: str = "") -> str:
    """A whole picture that scales to its place; `words` say what it shows to who can't see it.

    `about` describes it further.
    """
    more = f"<desc>{escape(about)}</desc>" if about else ""
    return (
        f'<svg viewBox="0 0 {short(width)} {short(height)}" role="img" '
        f'aria-label="{escape(words, quote=True)}">{more}{"".join(parts)}</svg>'
    )


def text_width(text: str) -> float:
    """How wide a text is, about (px)."""
    return len(text) * LETTER


def fitted(text: str, room: float) -> str:
    """As much of a text as fits into some px. The ends tell names apart, so the middle goes."""
    most = max(int(room / LETTER), 3)
    if len(text) <= most:
        return text
    kept = most - 1
    return f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
