"""Lines of memory as strips of 64 bytes: which of them each thread accesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailscope.present import svg
from tailscope.present.pages.charts.frame import Words, picture

#: Bytes of a line, and of a word: the strip has a mark at each.
LINE, WORD = 64, 8
#: Heights (px) of a line's title, of a thread's strip, and of the air below a line.
TITLE, ROW, BAR, AIR = 26.0, 24.0, 14.0, 16.0
#: Widths (px) of the names of threads, and of the strip, in a wide picture.
NAMES, STRIP = 170.0, 448.0


@dataclass(frozen=True)
class Piece:
    """Bytes that a thread accesses."""

    #: The first, and the first behind the last.
    first: int
    behind: int
    #: What is said where a mouse rests on it.
    tip: str


@dataclass(frozen=True)
class User:
    """A thread at a line."""

    name: str
    #: `one`, `two`, `three` or `four`, as the style sheet has them.
    colour: str
    pieces: Sequence[Piece]
    #: What it accesses, in words.
    about: str


@dataclass(frozen=True)
class Strip:
    """A line."""

    title: str
    users: Sequence[User]


def draw(strips: Sequence[Strip], words: Words, width: float) -> str:
    """The lines below each other, each thread with a strip of its own."""
    is_wide = width > 500
    row = ROW if is_wide else ROW + 16
    parts, y = [], 0.0
    for strip in strips:
        title = svg.fitted(strip.title, 0.85 * width)  # it is in bold letters
        parts.append(svg.label(0, y + 16, title, "value"))
        y += TITLE
        for user in strip.users:
            parts += (beside if is_wide else below)(user, y, width)
            y += row
        y += AIR
    return picture(width, y, words, parts)


def beside(user: User, y: float, width: float) -> list[str]:
    """The thread's name, its strip, and what it accesses, side by side."""
    end = NAMES + STRIP
    about = svg.fitted(user.about, width - end - 14)
    return [
        svg.label(0, y + BAR - 2, svg.fitted(user.name, NAMES - 10), "row"),
        *boxes(user, NAMES, y, STRIP),
        svg.label(end + 12, y + BAR - 2, about, "tick"),
    ]


def below(user: User, y: float, width: float) -> list[str]:
    """The strip, with the words above it: on a phone."""
    said = f"{user.name}: {user.about}" if user.about else user.name
    return [
        svg.label(0, y + 10, svg.fitted(said, width), "row"),
        *boxes(user, 0, y + 16, width),
    ]


def boxes(user: User, left: float, y: float, width: float) -> list[str]:
    """A strip with the bytes that the thread accesses."""
    byte = width / LINE
    parts = [svg.box(left, y, width, BAR, "strip", radius=3)]
    for piece in user.pieces:
        first = min(max(piece.first, 0), LINE - 1)
        behind = min(max(piece.behind, first + 1), LINE)
        x, wide = left + first * byte, (behind - first) * byte
        parts.append(svg.box(x, y, wide, BAR, f"f-{user.colour}", piece.tip, radius=2))
    for place in range(WORD, LINE, WORD):
        x = left + place * byte
        parts.append(svg.line(x, y, x, y + BAR, "word"))
    return parts
