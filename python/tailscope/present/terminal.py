"""The terminal that text goes to: how wide it is, and which letters and colours it has.

All text for people is laid out here. Letters are replaced before the layout, because an ellipsis
takes three columns in ASCII.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from tailscope.escaping import escaped

#: The width of output that no terminal shows: a pipe, a file.
WIDTH = 80
#: Narrower terminals are treated as this wide: a table has no fewer columns.
NARROWEST = 48
BOLD, DIM, ACCENT, RESET = "\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m"
#: What ASCII has in place of the letters that the output uses.
ASCII = str.maketrans(
    {
        **{"µ": "u", "μ": "u", "–": "-", "—": "-", "−": "-", "‐": "-", "…": "...", "·": "."},
        **{"“": '"', "”": '"', "„": '"', "’": "'", "‘": "'", "²": "^2", "×": "x", "±": "+/-"},
        **{"≥": ">=", "≤": "<=", "≈": "~", "→": "->", "←": "<-", "\u00a0": " ", "\u202f": " "},
        **dict.fromkeys("─━═", "-"),
        **dict.fromkeys("│┃║", "|"),
        **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
        **dict.fromkeys("█▇▆▅▄▃▂▁▓▒░", "#"),
    }
)
#: The locales that Python itself puts in the place of C (PEP 538).
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")


def plain(text: str) -> str:
    """The text in ASCII; a letter that ASCII has nothing for is a question mark."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text.translate(ASCII))
    apart = "".join(letter for letter in apart if not unicodedata.combining(letter))
    return apart.encode("ascii", "replace").decode("ascii")


def locale_of(environment: Mapping[str, str]) -> str:
    """The locale of letters that the user chose, by POSIX's order of variables; "" is C.

    Under the C locale, Python sets LC_CTYPE to C.UTF-8 for itself. That is not the user's choice.
    """
    names = ["LC_ALL", "LC_CTYPE", "LANG"]
    asked = environment.get("PYTHONUTF8") == "1" or sys._xoptions.get("utf8")
    if sys.flags.utf8_mode and not asked and environment.get("LC_CTYPE") in COERCED:
        names.remove("LC_CTYPE")
    return next((value for name in names if (value := environment.get(name))), "")


def has_unicode(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether both the stream and the locale have more letters than ASCII's."""
    encodings = (stream.encoding or "ascii", locale_of(environment))
    return all("UTF8" in name.upper().replace("-", "") for name in encodings)


@dataclass(frozen=True)
class Terminal:
    """Where text goes; the default is a pipe that takes Unicode."""

    width: int = WIDTH
    coloured: bool = False
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """The terminal behind a stream; COLUMNS overrides its width.

        Colours are only on a terminal, and never under NO_COLOR (DESIGN §3).
        """
        width = shutil.get_terminal_size((WIDTH, 24)).columns
        colours = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        return cls(max(width, NARROWEST), stream.isatty() and colours, has_unicode(stream))

    def spell(self, text: str) -> str:
        """The text in one line, in letters that this terminal has and none that it obeys."""
        return self.letters(escaped(text))

    def spell_lines(self, text: str) -> str:
        """The same of several lines."""
        return self.letters(escaped(text, but="\n"))

    def letters(self, text: str) -> str:
        """The text in letters that this terminal has."""
        return text if self.unicode else plain(text)

    def paint(self, style: str, when: bool = True) -> tuple[str, str]:
        """What to put before and after a line."""
        return (style, RESET) if self.coloured and when else ("", "")

    def wrapped(self, text: str, style: str = "", indent: str = "") -> list[str]:
        """A paragraph in lines; those after the first have an indent."""
        before, after = self.paint(style, bool(style))
        lines = textwrap.wrap(
            self.spell(text),
            self.width,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return [before + line + after for line in lines]

    def table(
        self, rows: Sequence[Sequence[str]], widths: Sequence[int], indent: str = ""
    ) -> list[str]:
        """Rows in columns: the first to the left, the others to the right, a blank between.

        Columns have at least the given widths where the terminal has room for that.
        """
        spelled = [[self.spell(cell) for cell in row] for row in rows]
        needed = [max(len(cell) for cell in column) for column in zip(*spelled, strict=True)]
        wanted = [max(*pair) for pair in zip(needed, widths, strict=True)]
        fits = len(indent) + sum(wanted) + len(wanted) - 1 <= self.width
        return [indent + aligned(row, wanted if fits else needed) for row in spelled]

    def cut(self, name: str, width: int) -> str:
        """A name, cut to a width."""
        name = self.spell(name)
        if len(name) <= width:
            return name
        mark = self.spell("…")
        return name[: max(width - len(mark), 1)] + mark


def aligned(cells: Iterable[str], widths: Iterable[int]) -> str:
    """The first cell to the left, the others to the right, a blank between."""
    parts = [
        cell.ljust(width) if number == 0 else cell.rjust(width)
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return " ".join(parts)


def noticed(notices: Iterable[str], terminal: Terminal) -> Iterator[str]:
    """What a reader must know before any figure: the first lines, and a blank one after them."""
    lines = [line for notice in notices for line in terminal.wrapped(notice, ACCENT, "  ")]
    if lines:
        yield from (*lines, "")
