"""Apache Spark: a cluster (`spark://HOST:PORT`), Spark Connect (`sc://HOST:PORT`), or a Spark on
this machine (`spark://local`).

The files are read by the cluster's workers, so they must see them under the same path. PySpark is
an extra of the wheel: `pip install 'tailscope[spark]'`; but for Spark Connect it needs Java 17.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tailscope.engine import VIEW, Engine, reach
from tailscope.errors import LedgerError, MachineError
from tailscope.ledger import Ledger

if TYPE_CHECKING:
    import ibis
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

LOCAL = "spark://local"
#: Ports where Spark listens unless it was told another.
CONNECT_PORT, MASTER_PORT = 15_002, 7_077
SPARK_TYPES = {"int64": "BIGINT", "float64": "DOUBLE", "string": "STRING"}


class Spark(Engine):
    """A Spark session with the ledger's files as a temporary view."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.session, self.ours = session(ledger.engine)
        self.frames: list[DataFrame] = []
        try:
            rows: DataFrame | None = None
            for number, recording in enumerate(ledger.recordings):
                one = self.read([where(file) for file in recording.files], number)
                rows = one if rows is None else rows.unionByName(one)
            rows.createOrReplaceTempView(VIEW)
        except failures() as error:
            self.close()
            raise complaint(error) from error

    def read(self, files: list[str], number: int) -> DataFrame:
        """One recording's rows; columns that a file lacks are null."""
        from pyspark.sql import functions

        columns = {name: kind for name, kind in self.columns.items() if name != "ledger"}
        schema = ", ".join(f"{name} {SPARK_TYPES[kind]}" for name, kind in columns.items())
        rows = self.session.read.schema(schema).parquet(*files)
        return rows.withColumn("ledger", functions.lit(number).cast("bigint"))

    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """See `Engine.run`."""
        try:
            found = self.session.sql(sql(query)).toArrow()
        except failures() as error:
            raise complaint(error) from error
        return {name: as_numpy(found.column(name)) for name in found.column_names}

    def store(self, name: str, query: ibis.Table) -> None:
        """As a cached view, in the cluster's memory or on its disks."""
        try:
            rows = self.session.sql(sql(query)).cache()
            rows.createOrReplaceTempView(name)
        except failures() as error:
            raise complaint(error) from error
        self.frames.append(rows)

    def close(self) -> None:
        """Free what was cached, and stop the session if it was made here."""
        for rows in self.frames:
            rows.unpersist()
        self.frames.clear()
        if self.ours:
            self.session.stop()


def session(address: str) -> tuple[SparkSession, bool]:
    """A session with no other's views in it, and whether it has to be stopped."""
    try:
        import pyarrow  # noqa: F401 (results come as its tables)
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MachineError(
            f"the engine {address} needs {error.name}: pip install 'tailscope[spark]'"
        ) from error
    if address.startswith("sc://"):
        reach(address, CONNECT_PORT)
    elif address != LOCAL:
        reach(address, MASTER_PORT)
    try:
        if active := SparkSession.getActiveSession():
            return active.newSession(), False
        maker = SparkSession.builder.appName("tailscope explain")
        if address.startswith("sc://"):
            return maker.remote(address).getOrCreate(), True
        maker = maker.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        maker = maker.config("spark.ui.showConsoleProgress", "false")
        if address == LOCAL:
            # Spark's usual 200 pieces of a group-by are 200 tasks to start, for a machine of a few.
            maker = maker.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
            address = "local[*]"
        return maker.master(address).getOrCreate(), True
    except PySparkException as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise MachineError(
                "Spark needs Java 17 or newer, and none starts here: install default-jre-headless, "
                "or leave --engine out"
            ) from error
        raise complaint(error) from error


def where(file: str) -> str:
    """A file's name as Spark reads it: as a URL, with its glob characters as they are."""
    escaped = "".join(f"\\{letter}" if letter in "[]{}*?\\" else letter for letter in file)
    return escaped.replace("s3://", "s3a://", 1)


def sql(query: ibis.Table) -> str:
    """The query in Spark's language."""
    import ibis

    # Ibis' translator reads options that exist once its connection to Spark is loaded.
    translator = ibis.pyspark
    return str(ibis.to_sql(query, dialect=translator.name, pretty=False))


def as_numpy(column: pyarrow.ChunkedArray) -> NDArray:
    """A column of a result; nulls are masked."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not missing.any():
        return column.to_numpy()
    values: Any = column.to_pylist()
    plain = next((value for value in values if value is not None), 0)
    held = [plain if value is None else value for value in values]
    return np.ma.masked_array(np.array(held), mask=missing)


def failures() -> tuple[type[Exception], ...]:
    """What Spark's client raises: its own errors, and those of its bridge to Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def complaint(error: Exception) -> LedgerError:
    """Spark's own words, of which the first line says what is wrong."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return LedgerError(f"Spark can't answer: {first}")
