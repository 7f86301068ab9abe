"""Which engine reads a ledger: DuckDB in the process, unless another is named.

An engine is imported when it is asked for: the clients of the others are extras of the wheel.
"""

from __future__ import annotations

from tailscope.engines.address import shown
from tailscope.engines.engine import Engine
from tailscope.errors import TailscopeError
from tailscope.ledger.ledger import DUCKDB, Ledger


def connect(ledger: Ledger) -> Engine:
    """The engine that a ledger was opened for, with the ledger's rows in it."""
    kind = ledger.engine.partition("://")[0]
    if ledger.engine == DUCKDB:
        from tailscope.engines.duckdb import DuckDB

        return DuckDB(ledger)
    if kind in ("spark", "sc"):
        from tailscope.engines.spark import Spark

        return Spark(ledger)
    if kind in ("clickhouse", "clickhouses"):
        from tailscope.engines.clickhouse import ClickHouse

        return ClickHouse(ledger)
    raise TailscopeError(
        f"there is no engine '{shown(ledger.engine)}'; use duckdb, spark://HOST:PORT, "
        "spark://local, sc://HOST:PORT or clickhouse://HOST:PORT"
    )
