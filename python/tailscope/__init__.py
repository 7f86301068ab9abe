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

Where to look:

    ledger, storage                    open ledgers in folders and buckets, and check their files
    engine, engines                    run queries in DuckDB, Spark or ClickHouse
    spans, measure, grid               reduce the spans to counts on a logarithmic grid
    sample, shapley                    whole rows, drawn at random, and what needs them
    counterfactual, bootstrap, replay  savings, their intervals, and the queues behind waits
    ranked, threshold, impact, rules   VarMRI
    blame, coverage, advice            who is to blame, what is not covered, what to do
    explanation, diff                  all of that for one ledger, and for two
    text, report, terminal             only present it

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
