"""ClickHouse: a server that is reached over HTTP, `clickhouse://[USER[:PASSWORD]@]HOST[:PORT][/DB]`.

The rows go into a temporary table of our session, once: the Parquet files are sent as they are, a
block of bytes at a time, so the server needs neither our disks nor our keys to a bucket. When the
session ends, by us or because nothing was asked for a while, the server drops its tables.

Its client is an extra of the wheel: `pip install 'tailscope[clickhouse]'`.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from numpy.typing import NDArray

from tailscope.engines.address import PATIENCE_S, reach, shown
from tailscope.engines.arrow import as_arrays
from tailscope.engines.engine import VIEW, Engine
from tailscope.errors import LedgerError, MachineError
from tailscope.ledger import storage
from tailscope.ledger.ledger import Ledger

if TYPE_CHECKING:
    import ibis
    from clickhouse_connect.driver.client import Client

#: Where ClickHouse listens for HTTP unless it was told another.
PORT, SECURE_PORT = 8_123, 8_443
TYPES = {"int64": "Nullable(Int64)", "float64": "Nullable(Float64)", "string": "Nullable(String)"}
#: A session without a question for so long is dropped by the server, with its tables, in s. Between
#: two questions the statistics run here, for seconds.
SESSION_S = 600
#: How long one question over all rows may take, in s.
ANSWER_S = 3_600
#: Where the server's habit is not SQL's: a join without a partner gives nulls, not zeros.
SETTINGS = {"session_timeout": SESSION_S, "join_use_nulls": 1}
#: A temporary table on the server's disks; the usual kind is in its memory.
ON_DISK = "ENGINE = MergeTree ORDER BY tuple()"


class ClickHouse(Engine):
    """A session with the ledger's rows as a temporary table."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        # Two ledgers that are compared may share a session behind a proxy.
        self.prefix = f"tailscope_{secrets.token_hex(4)}_"
        self.tables: list[str] = []
        self.client = client(ledger.engine)
        columns = {name: kind for name, kind in self.columns.items() if name != "ledger"}
        declared = ", ".join(f"{name} {TYPES[kind]}" for name, kind in columns.items())
        table = self.named(VIEW)
        try:
            self.create(VIEW, f"(ledger Int64 DEFAULT 0, {declared}) {ON_DISK}")
            for number, recording in enumerate(ledger.recordings):
                # A column that a file lacks takes its default: here, the recording's number.
                self.client.command(f"ALTER TABLE {table} MODIFY COLUMN ledger DEFAULT {number}")
                for file in recording.files:
                    self.insert(file, list(columns))
            self.check(ledger.contents.rows)
        except failures() as error:
            self.close()
            raise complaint(error) from error
        except BaseException:
            self.close()
            raise

    def named(self, name: str) -> str:
        """See `Engine.named`."""
        return self.prefix + name

    def create(self, name: str, rest: str) -> None:
        """A table that only this session sees."""
        self.client.command(f"CREATE TEMPORARY TABLE {self.named(name)} {rest}")
        self.tables.append(self.named(name))

    def insert(self, file: str, columns: list[str]) -> None:
        """Send a file as it is; the server reads it as Parquet."""
        try:
            source = storage.open_file(file)
        except OSError as error:
            raise LedgerError(f"can't read {file}: {error.strerror}") from error
        with source:
            self.client.raw_insert(self.named(VIEW), columns, insert_block=source, fmt="Parquet")

    def check(self, expected: int) -> None:
        """A file that changed meanwhile, or was sent twice, must not become a wrong answer."""
        found = int(self.client.command(f"SELECT count() FROM {self.named(VIEW)}"))
        if found != expected:
            raise LedgerError(
                f"ClickHouse has {found:,} of the ledger's {expected:,} rows: the ledger may still "
                "be written; try again"
            )

    def run(self, query: ibis.Table) -> dict[str, NDArray]:
        """See `Engine.run`."""
        try:
            return as_arrays(self.client.query_arrow(sql(query)))
        except failures() as error:
            raise complaint(error) from error

    def store(self, name: str, query: ibis.Table) -> None:
        """As a temporary table."""
        try:
            self.create(name, f"{ON_DISK} AS {sql(query)}")
        except failures() as error:
            raise complaint(error) from error

    def close(self) -> None:
        """Drop the tables now; the server would when the session has run out."""
        for name in self.tables:
            with suppress(*failures()):
                self.client.command(f"DROP TEMPORARY TABLE IF EXISTS {name}")
        self.tables.clear()
        self.client.close()


def client(address: str) -> Client:
    """A session of its own with a server; user and password may also be in the environment."""
    try:
        import clickhouse_connect
        import pyarrow  # noqa: F401 (results come as its tables)
    except ImportError as error:
        raise MachineError(
            f"the engine {shown(address)} needs {error.name}: pip install 'tailscope[clickhouse]'"
        ) from error
    parts = urlsplit(address)
    secure = parts.scheme == "clickhouses"
    host, port = reach(address, SECURE_PORT if secure else PORT)
    try:
        return clickhouse_connect.get_client(
            host=host,
            port=port,
            secure=secure,
            database=unquote(parts.path.strip("/")) or "__default__",
            username=unquote(parts.username or "") or os.environ.get("CLICKHOUSE_USER", "default"),
            password=unquote(parts.password or "") or os.environ.get("CLICKHOUSE_PASSWORD", ""),
            connect_timeout=int(PATIENCE_S),
            # A question over all rows takes as long as it takes.
            send_receive_timeout=ANSWER_S,
            settings=SETTINGS,
            client_name="tailscope",
        )
    except failures() as error:
        raise MachineError(
            f"the engine at {host}:{port} does not answer like ClickHouse over HTTP "
            f"({first_line(error)}); check that the port is its HTTP port, usually {PORT}"
        ) from error


def sql(query: ibis.Table) -> str:
    """The query in ClickHouse's language."""
    import ibis

    return str(ibis.to_sql(query, dialect="clickhouse", pretty=False))


def failures() -> tuple[type[Exception], ...]:
    """What ClickHouse's client raises: its own errors, and those of HTTP."""
    from clickhouse_connect.driver.exceptions import Error
    from urllib3.exceptions import HTTPError

    return Error, HTTPError


def first_line(error: Exception) -> str:
    """What an error says, without the client's frame around it and our statement within."""
    text = str(error).rpartition("DB::Exception: ")[2].strip() or type(error).__name__
    return re.split(r"\n|: In scope |\. In scope |\(for url ", text)[0].strip()


def complaint(error: Exception) -> LedgerError:
    """ClickHouse's own words, of which the first line says what is wrong."""
    return LedgerError(f"ClickHouse can't answer: {first_line(error)}")
