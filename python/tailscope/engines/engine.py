"""The engine: expressions in, arrays out.

The expressions are Ibis', so every engine of this package runs the same ones. Ibis only
translates; each engine runs the text in its own way and hands back numpy arrays.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from tailscope.ledger.causes import BLAMED
from tailscope.ledger.ledger import CHAIN, IDENTITY, TRACE, Ledger

if TYPE_CHECKING:
    import ibis

#: The name of the table that holds a ledger's rows.
VIEW = "spans"
#: The column with the number of other requests that a span's thread began or answered meanwhile.
OTHERS = "others"


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


def column_types(ledger: Ledger) -> dict[str, str]:
    """The columns that are read, with Ibis' names of their types."""
    types = {"ledger": "int64", "start_ns": "int64", "span": "string"}
    types |= {"wall_ns": "int64", "weight": "float64"}
    plain = (*IDENTITY, OTHERS, *CHAIN, *TRACE)
    types |= {name: "int64" for name in plain if name in ledger.contents.columns}
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
