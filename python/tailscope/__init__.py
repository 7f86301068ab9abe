"""Tailscope's analysis: what the tail of a ledger's latencies is made of (DESIGN §5).

    import tailscope

    for cause in tailscope.open("LEDGER").causes("p99"):
        print(cause.name, cause.saving.ns)

Importing this package is cheap; the engine is loaded when a ledger is opened.
"""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope.ledger import Ledger

__all__ = ["open"]
__version__ = "0.1.0"


def open(*paths: str | PathLike[str], engine: str = "duckdb") -> Ledger:
    """The ledger at one or several paths, checked; raises `tailscope.errors.LedgerError`.

    `engine` reads the rows: `duckdb`, or the address of another (`tailscope explain --help`).
    """
    from tailscope.ledger import open_ledger

    return open_ledger(paths, engine)
