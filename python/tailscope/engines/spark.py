"""Apache Spark: a cluster (`spark://HOST:PORT`), Spark Connect (`sc://HOST:PORT`), or a Spark on
this machine (`spark://local`).

The files are read by the cluster's workers, so they must see them under the same path. PySpark is
an extra of the wheel: `pip install 'tailscope[spark]'`; but for Spark Connect it needs Java 17.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from numpy.typing import NDArray

from tailscope.engines.address import reach
from tailscope.engines.arrow import as_arrays
from tailscope.engines.engine import VIEW, Engine
from tailscope.errors import LedgerError, MachineError, TailscopeError
from tailscope.ledger.ledger import Ledger

if TYPE_CHECKING:
    import ibis
    from pyspark.sql import DataFrame, SparkSession

LOCAL = "spark://local"
#: Ports where Spark listens unless it was told another.
CONNECT_PORT, MASTER_PORT = 15_002, 7_077
#: How long Spark may take to answer at all (its Java has to start first), and a cluster to give the
#: first worker, in s.
ANSWER_S, WORKER_S = 30.0, 60.0
#: Pieces that a group-by's result is put together in. Spark's usual 200 are for results that are
#: large; these are counts, and each piece is a task to start.
PIECES = 4
SPARK_TYPES = {"int64": "BIGINT", "float64": "DOUBLE", "string": "STRING"}


class Spark(Engine):
    """A Spark session with the ledger's files as a temporary view."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.session, self.ours = session(ledger.engine)
        self.session.conf.set("spark.sql.shuffle.partitions", PIECES)
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
        # The files were checked where this runs; the workers may see others under the same path.
        reader = self.session.read.option("parquet.page.verify-checksum.enabled", "true")
        rows = reader.schema(schema).parquet(*files)
        return rows.withColumn("ledger", functions.lit(number).cast("bigint"))

    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """See `Engine.run`."""
        try:
            return as_arrays(self.session.sql(sql(query)).toArrow())
        except failures() as error:
            raise complaint(error) from error

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
    if address != LOCAL:
        reach(address, CONNECT_PORT if address.startswith("sc://") else MASTER_PORT)
    try:
        if address.startswith("sc://"):
            # A session of its own, whatever others this process has.
            return answering(address, SparkSession.builder.remote(address).create), True
        if active := existing():
            return shared(active, address), False
        maker = SparkSession.builder.appName("tailscope explain").master(master(address))
        maker = maker.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
        maker = maker.config("spark.ui.showConsoleProgress", "false")
        if address == LOCAL:
            return maker.getOrCreate(), True
        made = answering(address, maker.getOrCreate)
    except TailscopeError:
        raise
    except PySparkException as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise MachineError(
                "Spark needs Java 17 or newer, and none starts here; install default-jre-headless, "
                "or leave --engine out"
            ) from error
        raise complaint(error) from error
    except Exception as error:
        # Spark's client lets through what its bridges to Java and to gRPC raise.
        raise MachineError(f"no Spark answers at {address}: {first_line(error)}") from error
    await_worker(made, address)
    return made, True


def master(address: str) -> str:
    """An address as Spark writes it."""
    return "local[*]" if address == LOCAL else address


def existing() -> SparkSession | None:
    """The session that this process has, whichever thread made it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if active := SparkSession.getActiveSession():
        return active
    # Java knows the active one for each thread, and `answering` has a thread of its own.
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context else None


def shared(active: SparkSession, address: str) -> SparkSession:
    """A session beside the one that this process has: PySpark has one cluster a process."""
    if active.sparkContext.master != master(address):
        raise MachineError(
            f"this process already uses the Spark at {active.sparkContext.master}, and can't "
            f"also use the one at {address}; stop the first session"
        )
    return active.newSession()


def answering(address: str, connect: Callable[[], SparkSession]) -> SparkSession:
    """What `connect` returns, if Spark answers in time: its own client tries for minutes."""
    done: queue.Queue[SparkSession | Exception] = queue.Queue()

    def ask() -> None:
        try:
            made = connect()
            made.version  # noqa: B018 (asks the other side)
            done.put(made)
        except Exception as error:
            done.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        found = done.get(timeout=ANSWER_S)
    except queue.Empty:
        raise MachineError(
            f"the server at {address.partition('://')[2]} does not answer like Spark within "
            f"{ANSWER_S:g} s; check that the address is that of a master (spark://) or a "
            "Connect server (sc://)"
        ) from None
    if isinstance(found, Exception):
        raise found
    return found


def await_worker(made: SparkSession, address: str) -> None:
    """Wait for a worker; without one a question would wait for ever."""
    until = time.monotonic() + WORKER_S
    tracker = made.sparkContext._jsc.sc().statusTracker()
    # The driver itself is one of them.
    while len(tracker.getExecutorInfos()) < 2:
        if time.monotonic() > until:
            made.stop()
            raise MachineError(
                f"the Spark master at {address} gave no worker within {WORKER_S:g} s; check "
                "that it has workers, and that they are free"
            )
        time.sleep(0.1)


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


def failures() -> tuple[type[Exception], ...]:
    """What Spark's client raises: its own errors, and those of its bridge to Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError


def first_line(error: Exception) -> str:
    """The line of Spark's words that says what is wrong."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def complaint(error: Exception) -> LedgerError:
    """Spark's own words."""
    return LedgerError(f"Spark can't answer: {first_line(error)}")
