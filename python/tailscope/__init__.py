"""Tailscope's analysis: what the tail of a ledger's latencies is made of (DESIGN §5).

    import tailscope

    causes = tailscope.open("LEDGER").causes("p99")
    causes                    # in a notebook, a table; print(causes) the same as text
    causes[0].saving.ns       # what the most valuable one is worth
    causes.to_pandas()        # a data frame, and
    causes.chart()            # a chart, with pip install 'tailscope[notebook]'

    ledger = tailscope.open("s3://runs/today", engine="clickhouse://host")
    ledger.segments("10m")             # typical, worst and best piece of the time
    ledger.explain("p99").impacts()    # VarMRI's impact values, and what its rules leave

docs/ENGINES.md has the engines, the addresses of ledgers and the columns of the data frames.

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
    """The ledger at one or several paths or `s3://` URLs, checked; raises `errors.LedgerError`.

    `engine` reads the rows: `duckdb`, or the address of another (`tailscope explain --help`).
    """
    import warnings

    from tailscope.ledger import open_ledger
    from tailscope.terminal import escaped

    ledger = open_ledger(paths, engine)
    for notice in ledger.notices:
        warnings.warn(escaped(notice), stacklevel=2)
    return ledger
