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

docs/reference/engines.md has the engines, the addresses of ledgers, and the columns of the data
frames.

The packages, each of which uses only those below it:

    cli, diff_cli    the commands `tailscope explain` and `tailscope diff`
    present          text, the HTML report, notebooks
    statistics       savings and their intervals, impact values, blame: all that is computed
    engines          queries over the rows, in DuckDB, Spark or ClickHouse
    ledger           find, check and describe the files of a ledger

All of them use `errors`, `quantity` and `escaping`. Importing this package is cheap: the engine is
loaded when a ledger is opened.
"""

from __future__ import annotations

from importlib import import_module
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailscope.present.notebook import Ledger

__all__ = ["frames", "open"]
__version__ = "0.1.0"


def open(*paths: str | PathLike[str], engine: str = "duckdb") -> Ledger:
    """The ledger at one or several paths or `s3://` URLs, checked; raises `errors.LedgerError`.

    `engine` reads the rows: `duckdb`, or the address of another (`tailscope explain --help`).
    """
    import warnings

    from tailscope.escaping import escaped
    from tailscope.present.notebook import open_ledger

    ledger = open_ledger(paths, engine)
    for notice in ledger.notices:
        warnings.warn(escaped(notice), stacklevel=2)
    return ledger


def __getattr__(name: str) -> ModuleType:
    """`tailscope.frames`, the data frames of an explanation, is loaded when it is named."""
    if name == "frames":
        return import_module("tailscope.frames")
    raise AttributeError(f"module 'tailscope' has no attribute '{name}'")
