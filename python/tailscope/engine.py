"""The engine: expressions in, arrays out. DuckDB in the process; the expressions are Ibis and run
elsewhere too.

Ibis translates; DuckDB runs the text. Going through Ibis' own connection would bring pandas and
pyarrow (180 MB) for results that numpy holds as well.
"""

from __future__ import annotations

import os
import tempfile
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.errors import LedgerError, MachineError
from tailscope.ledger import IDENTITY, Ledger

if TYPE_CHECKING:
    import duckdb
    import ibis

#: Group-bys of a few 100,000 groups need about 100 MB; the rest is read-ahead. With numpy and the
#: interpreter the process stays below 1 GiB.
MEMORY_LIMIT = "2GB"
VIEW = "spans"


class Engine:
    """A DuckDB with one view, `spans`: the ledger's rows and `ledger`, the recording's number."""

    def __init__(self, ledger: Ledger) -> None:
        import duckdb

        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.connection = duckdb.connect(
            config={
                "threads": cpus or 1,
                "memory_limit": MEMORY_LIMIT,
                "temp_directory": os.path.join(tempfile.gettempdir(), f"tailscope-{os.getpid()}"),
                "preserve_insertion_order": False,
                # Nothing is fetched from anywhere: what explain needs is built in.
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )
        self.columns = column_types(ledger)
        self.kept = 0
        selects = []
        for number, recording in enumerate(ledger.recordings):
            files = ", ".join("'" + str(path).replace("'", "''") + "'" for path in recording.files)
            selects.append(
                f"SELECT {number}::BIGINT AS ledger, * FROM "
                f"read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
            )
        self.connection.execute(f"CREATE VIEW {VIEW} AS " + " UNION ALL BY NAME ".join(selects))

    def table(self) -> ibis.Table:
        """The view as an expression."""
        import ibis

        return ibis.table(self.columns, name=VIEW)

    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """The query's result, a column an array; nulls become a masked array's masked places."""
        return self.execute(self.sql(query)).fetchnumpy()

    def sql(self, query: ibis.Table) -> str:
        """The query in the engine's language."""
        import ibis

        return str(ibis.to_sql(query, dialect="duckdb", pretty=False))

    def execute(self, text: str) -> duckdb.DuckDBPyConnection:
        """Run a statement."""
        import duckdb

        try:
            return self.connection.execute(text)
        except duckdb.OutOfMemoryException as error:
            raise MachineError(
                f"the analysis needs more than {MEMORY_LIMIT}: explain fewer files at once"
            ) from error
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise LedgerError(f"a file of this ledger is damaged inside: {first}") from error

    def keep(self, query: ibis.Table) -> ibis.Table:
        """The query's rows, kept until the engine is closed; beyond its memory, on disk."""
        import ibis

        self.kept += 1
        name = f"kept_{self.kept}"
        self.execute(f"CREATE TEMP TABLE {name} AS {self.sql(query)}")
        return ibis.table(query.schema(), name=name)

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()


def column_types(ledger: Ledger) -> dict[str, str]:
    """The columns that are read, with Ibis' names of their types."""
    types = {"ledger": "int64", "start_ns": "int64", "span": "string"}
    types |= {"wall_ns": "int64", "weight": "float64"}
    types |= {name: "int64" for name in IDENTITY if name in ledger.contents.columns}
    for cause in ledger.stored_causes:
        types[f"{cause}_ns"] = "int64"
        if f"{cause}_n" in ledger.contents.columns:
            types[f"{cause}_n"] = "int64"
    types |= dict.fromkeys(ledger.stored_counters, "int64")
    return types


def filled(values: NDArray, missing: float | str | None = 0) -> NDArray:
    """A result column with nulls replaced."""
    return np.ma.filled(values, missing)
