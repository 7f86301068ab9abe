"""What the cards of a page are made of. `templates/parts.html.j2` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Table:
    """The figures behind a picture, in a table that opens on demand.

    It is for readers who use a keyboard, a screen reader or paper, or who want the number.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Panel:
    """A picture with a title, the key to its colours, and sentences below it."""

    title: str
    picture: Markup | None
    notes: Sequence[str] = ()
    #: Classes and words of the colours.
    legend: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True)
class Fact:
    """A figure in large letters."""

    title: str
    value: str
    note: str
    #: The page is about this one.
    is_goal: bool = False
