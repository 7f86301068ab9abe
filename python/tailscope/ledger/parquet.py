"""How DuckDB is told which files to read: as they are named, wherever they lie."""

from __future__ import annotations

#: Characters by which DuckDB would look for other files.
GLOB = "[*?"


def exact(file: str) -> str:
    """A file's name as DuckDB's functions take it; in brackets a letter only means itself."""
    return "".join(f"[{letter}]" if letter in GLOB else letter for letter in file)


def literal(file: str) -> str:
    """The same inside a statement."""
    return "'" + exact(file).replace("'", "''") + "'"
