"""The engine: expressions in, arrays out. DuckDB in the process, unless another is named.

The expressions are Ibis', so every engine of `tailscope.engines` runs the same ones. Ibis only
translates; each engine runs the text in its own way and hands back numpy arrays.
"""

from __future__ import annotations

import re
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from tailscope.cause import BLAMED
from tailscope.errors import MachineError, TailscopeError
from tailscope.ledger import DUCKDB, IDENTITY, Ledger

if TYPE_CHECKING:
    import ibis

#: The name of the table that holds a ledger's rows.
VIEW = "spans"
#: The column with the number of other requests that a span's thread began or answered meanwhile.
OTHERS = "others"
#: How long an engine elsewhere may take to accept a connection, in s.
PATIENCE_S = 5.0


class Engine(ABC):
    """A table `spans`: the ledger's rows with `ledger`, the recording's number."""

    def __init__(self, ledger: Ledger) -> None:
        self.columns = column_types(ledger)
        self.kept = 0

    def table(self) -> ibis.Table:
        """The rows as an expression."""
        import ibis

        return ibis.table(self.columns, name=self.named(VIEW))

    def named(self, name: str) -> str:
        """What a table is called in the engine."""
        return name

    @abstractmethod
    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """The query's result, a column an array; nulls become a masked array's masked places."""

    def keep(self, query: ibis.Table) -> ibis.Table:
        """The query's rows as a table of their own, until the engine is closed."""
        import ibis

        self.kept += 1
        name = f"kept_{self.kept}"
        self.store(name, query)
        return ibis.table(query.schema(), name=self.named(name))

    @abstractmethod
    def store(self, name: str, query: ibis.Table) -> None:
        """Make a table of the query's rows that only this engine sees."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything that was kept."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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


def shown(address: str) -> str:
    """An engine's address without the password that may be in it."""
    return re.sub(r"(//[^/@]*?):[^/@]*@", r"\1:…@", address)


def reach(address: str, port: int) -> tuple[str, int]:
    """Host and port of an engine's address, once somebody has answered there.

    Asked before the engine's own client is: those try for minutes.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or port
    except ValueError as error:
        raise TailscopeError(f"'{shown(address)}' is not an engine's address: {error}") from error
    if not host:
        raise TailscopeError(f"'{shown(address)}' is not an engine's address: it has no host")
    try:
        socket.create_connection((host, port), PATIENCE_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise MachineError(
            f"can't reach the engine at {host}:{port}: {reason}; check that it runs, or leave "
            "--engine out to analyse on this machine"
        ) from error
    return host, port


def column_types(ledger: Ledger) -> dict[str, str]:
    """The columns that are read, with Ibis' names of their types."""
    types = {"ledger": "int64", "start_ns": "int64", "span": "string"}
    types |= {"wall_ns": "int64", "weight": "float64"}
    types |= {name: "int64" for name in (*IDENTITY, OTHERS) if name in ledger.contents.columns}
    for cause in ledger.stored_causes:
        types[f"{cause}_ns"] = "int64"
        if f"{cause}_n" in ledger.contents.columns:
            types[f"{cause}_n"] = "int64"
    for cause in BLAMED:
        if f"{cause}_by" in ledger.contents.columns:
            types[f"{cause}_by"] = "string"
    types |= dict.fromkeys(ledger.stored_counters, "int64")
    return types


def filled(values: NDArray, missing: float | str | None = 0) -> NDArray:
    """A result column with nulls replaced."""
    return np.ma.filled(values, missing)
