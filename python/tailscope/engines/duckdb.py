"""DuckDB, in the process: the default.

Going through Ibis' own connection would bring pandas and pyarrow (180 MB) for results that numpy
holds as well, so DuckDB is given the text.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb
from numpy.typing import NDArray

from tailscope.engines.engine import VIEW, Engine
from tailscope.errors import LedgerError, MachineError
from tailscope.ledger import storage
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.parquet import literal

if TYPE_CHECKING:
    import ibis

#: Of 100 million rows the largest things at once are the kept tail (about 1 GB) and a group-by of
#: two million groups; what does not fit goes to disk.
MEMORY_LIMIT = "2GB"


class DuckDB(Engine):
    """A DuckDB of our own, with the ledger's files as a view."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self.overflow = tempfile.mkdtemp(prefix="tailscope-")
        self.connection = duckdb.connect(
            config={
                "threads": cpus or 1,
                "memory_limit": MEMORY_LIMIT,
                "temp_directory": self.overflow,
                "preserve_insertion_order": False,
                # Nothing is fetched from anywhere: what explain needs is built in.
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )
        # It would go to stdout, where the answer goes.
        self.connection.execute("SET enable_progress_bar = false")
        selects = []
        for number, recording in enumerate(ledger.recordings):
            here = self.fetch(recording.files, number)
            files = ", ".join(literal(file) for file in here)
            selects.append(
                f"SELECT {number}::BIGINT AS ledger, * FROM "
                f"read_parquet([{files}], hive_partitioning = false, union_by_name = true)"
            )
        self.connection.execute(f"CREATE VIEW {VIEW} AS " + " UNION ALL BY NAME ".join(selects))

    def fetch(self, files: Sequence[str], number: int) -> list[str]:
        """The files' names on this machine; from a bucket they are copied, once."""
        folder = os.path.join(self.overflow, f"recording-{number}")
        os.mkdir(folder)
        try:
            return storage.fetch(files, folder)
        except BaseException:
            self.close()
            raise

    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """See `Engine.run`."""
        return self.answer(sql(query))

    def store(self, name: str, query: ibis.Table) -> None:
        """As a temporary table: beyond the memory limit it goes to disk."""
        self.answer(f"CREATE TEMP TABLE {name} AS {sql(query)}")

    def answer(self, text: str) -> dict[str, NDArray]:
        """Run a statement."""
        try:
            return self.connection.execute(text).fetchnumpy()
        except duckdb.OutOfMemoryException as error:
            raise MachineError(
                f"the analysis needs more than {MEMORY_LIMIT} of memory and the space in "
                f"{tempfile.gettempdir()}: explain fewer files at once"
            ) from error
        except duckdb.Error as error:
            first = str(error).splitlines()[0]
            raise LedgerError(f"a file of this ledger is damaged inside: {first}") from error

    def close(self) -> None:
        """Drop the tables and what of them went to disk."""
        self.connection.close()
        shutil.rmtree(self.overflow, ignore_errors=True)


def sql(query: ibis.Table) -> str:
    """The query in DuckDB's language."""
    import ibis

    return str(ibis.to_sql(query, dialect="duckdb", pretty=False))
