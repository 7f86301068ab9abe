"""A folder that holds several ledgers, and one ledger that was named twice: neither is read as one.

An agent's folder is such an archive. Its ledgers may be named together, and then are read as one
table; that is for the person to say.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tailscope.errors import LedgerError, ListError
from tailscope.escaping import escaped
from tailscope.ledger import storage
from tailscope.quantity import count

LEDGER_JSON = "ledger.json"
#: Ledgers that are listed: the latest ones.
LISTED = 40


@dataclass(frozen=True)
class Shelf:
    """What lies below a path: the files of the ledger itself, and other ledgers' folders."""

    files: tuple[str, ...]
    others: tuple[str, ...]


def sort_out(path: str, names: Sequence[str]) -> Shelf:
    """Tell a ledger's own Parquet files from those of ledgers in folders below it.

    A ledger's folder has a ledger.json or partitions (`host=…`). Raises `LedgerError` with a list
    where the path itself is none and has some below it.
    """
    above = "" if path == "." else path.rstrip("/") + "/"
    inside = {name: name.removeprefix(above) for name in names}
    roots = {root for name in inside.values() if (root := root_of(name)) is not None}
    files: list[str] = []
    for name, relative in inside.items():
        if name.endswith(".parquet") and home(relative, roots) == "":
            files.append(name)
    others = sorted(roots - {""})
    if others and "" not in roots:
        raise ListError(listed(path, others))
    return Shelf(tuple(sorted(files)), tuple(others))


def root_of(relative: str) -> str | None:
    """The folder that this file makes a ledger's; None where it does not tell."""
    parts = relative.split("/")
    for depth, part in enumerate(parts[:-1]):
        if part.startswith("host="):
            return "/".join(parts[:depth])
    return "/".join(parts[:-1]) if parts[-1] == LEDGER_JSON else None


def home(relative: str, roots: Iterable[str]) -> str:
    """The ledger's folder in which a file lies; "" for the path itself."""
    above = [root for root in roots if root and relative.startswith(root + "/")]
    return max(above, key=len, default="")


def listed(path: str, ledgers: Sequence[str]) -> list[str]:
    """The ledgers in a folder: name, start, length and spans, the latest last."""
    found = [(name, about(f"{path.rstrip('/')}/{name}/{LEDGER_JSON}")) for name in ledgers]
    found.sort(key=lambda one: (number(one[1], "started_ns") or 0, one[0]))
    rows = [("ledger", "start (UTC)", "length", "spans")]
    rows += [(escaped(name), *described(said)) for name, said in found[-LISTED:]]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        f"{path} is a folder of {len(ledgers)} ledgers. Name the ones to explain, for example "
        f"{path.rstrip('/')}/{found[-1][0]}",
    ]
    for row in rows:
        first, start, length, spans = (cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        lines.append(f"  {first}  {start}  {length}  {spans.strip().rjust(widths[3])}")
    if len(found) > LISTED:
        lines.append(f"  and {len(found) - LISTED} that started earlier")
    return lines


def about(path: str) -> dict[str, Any]:
    """What a ledger.json says; nothing where it can't be read."""
    try:
        found = json.loads(storage.read_text(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def number(said: dict[str, Any], key: str) -> int | None:
    """A count in ledger.json; None where it is missing or not a number."""
    value = said.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def described(said: dict[str, Any]) -> tuple[str, str, str]:
    """A ledger's start, length and spans, for a person."""
    started, ended = number(said, "started_ns"), number(said, "ended_ns")
    start = "?"
    if started is not None and 0 <= started < 1 << 62:
        start = f"{datetime.fromtimestamp(started // 10**9, UTC):%Y-%m-%d %H:%M:%S}"
    if started is None or ended is None:
        return start, "not ended" if said.get("state") == "recording" else "?", "?"
    return start, clock((ended - started) // 10**9), count(number(said, "seen"))


def clock(seconds: int) -> str:
    """A length of time: 42 s, 5:03 min, 1:00:00 h."""
    if seconds < 60:
        return f"{seconds} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02} h"


def refuse_twice(named: Sequence[tuple[str, Sequence[str], Sequence[tuple[int, int]]]]) -> None:
    """Refuse recordings that share a file: `(path, files, size and checksum of each)`.

    By the file itself, so also through links and other spellings of a path; and by what is in
    it, so also a copy. A file without a checksum is only known by itself.
    """
    seen: dict[object, str] = {}
    for path, files, contents in named:
        mine: set[object] = {identity(file) for file in files}
        mine |= {one for one in contents if one[1]}
        for key in mine:
            if key in seen:
                raise LedgerError(
                    f"{seen[key]} and {path} hold the same spans, which would count twice; "
                    "name the ledger once"
                )
        seen |= dict.fromkeys(mine, path)


def identity(file: str) -> object:
    """What a file is known by, whatever path leads to it."""
    if storage.is_bucket(file):
        return file
    try:
        found = os.stat(file)
    except OSError:
        return os.path.realpath(file)
    return (found.st_dev, found.st_ino, "inode")


def shortened(names: Sequence[str], most: int = 3) -> str:
    """A list of names, of which the first are named."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return textwrap.shorten(", ".join(names[:most]), 4_000) + more
