"""Opening a ledger: which files belong to it, which can be read, and what its recorder says about
itself.

Everything that is wrong but can be lived with becomes a sentence in `Ledger.warnings`; what can't
be lived with is a `LedgerError`. A ledger is often looked at while something is broken, so the
reader takes what is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope import storage
from tailscope.cause import BLAMED, CAUSES
from tailscope.counter import COUNTERS, in_order
from tailscope.errors import LedgerError
from tailscope.parquet import exact

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from tailscope.explanation import Causes, Explanation
    from tailscope.segments import Segments

#: The newest version of docs/SCHEMA.md that this reader knows.
SCHEMA = 1
#: Without these a Parquet file is not a ledger's.
REQUIRED = {"start_ns": "BIGINT", "span": "VARCHAR", "wall_ns": "BIGINT", "weight": "DOUBLE"}
#: Read where they are there; they identify a span in the list of the worst.
IDENTITY = ("id", "pid", "tid", "cpu")
#: What a cause's columns end in.
CAUSE_COLUMNS = ("ns", "n", "by")
MAGIC = b"PAR1"
#: The engine that is there without anything else.
DUCKDB = "duckdb"


@dataclass(frozen=True)
class Extent:
    """A column's smallest and largest value and its nulls, as the files' own statistics say.

    `least` and `most` are None where the column is null throughout. `known` is False where a file
    has no statistics; then nothing may be concluded.
    """

    least: int | None
    most: int | None
    nulls: int
    known: bool = True

    def merge(self, other: Extent) -> Extent:
        """Of both files."""
        least = [value for value in (self.least, other.least) if value is not None]
        most = [value for value in (self.most, other.most) if value is not None]
        return Extent(
            min(least, default=None),
            max(most, default=None),
            self.nulls + other.nulls,
            self.known and other.known,
        )


@dataclass(frozen=True)
class Contents:
    """What the usable files of a ledger hold: rows, columns with their extents (times only)."""

    rows: int
    columns: frozenset[str]
    extents: dict[str, Extent]

    def merge(self, other: Contents) -> Contents:
        """Of both files; a column that one of them lacks is null there."""
        extents = {}
        for name in self.extents | other.extents:
            mine = self.extents.get(name, Extent(None, None, self.rows))
            yours = other.extents.get(name, Extent(None, None, other.rows))
            extents[name] = mine.merge(yours)
        return Contents(self.rows + other.rows, self.columns | other.columns, extents)


NOTHING = Contents(0, frozenset(), {})


@dataclass(frozen=True)
class Recording:
    """One recording: its folder (or single file), its readable files, and its ledger.json.

    Names are paths, or URLs of a bucket (`tailscope.storage`).
    """

    path: str
    files: tuple[str, ...]
    about: dict[str, Any]

    @property
    def host(self) -> str:
        """The host that was recorded, `?` where nobody wrote it down."""
        return str(part(self.about, "machine").get("host") or "?")


@dataclass(frozen=True)
class Ledger:
    """One or several recordings, read as one table."""

    recordings: tuple[Recording, ...]
    contents: Contents
    warnings: tuple[str, ...] = field(default=())
    #: Who does the O(rows) work: `duckdb`, or the address of an engine (`tailscope.engine`).
    engine: str = DUCKDB

    @property
    def stored_causes(self) -> tuple[str, ...]:
        """The causes that have columns here; they may still be null throughout."""
        return tuple(cause for cause in CAUSES if f"{cause}_ns" in self.contents.columns)

    @property
    def stored_counters(self) -> tuple[str, ...]:
        """The hardware counters that have columns here; they may still be null throughout."""
        told = (name for recording in self.recordings for name in counters(recording.about))
        found = in_order([*COUNTERS, *told])
        return tuple(name for name in found if name in self.contents.columns)

    def is_null(self, cause: str) -> bool:
        """Whether a cause was not measured: its column is null throughout, or not there."""
        extent = self.contents.extents.get(f"{cause}_ns")
        return extent is None or (extent.known and extent.nulls == self.contents.rows)

    def explain(
        self,
        target: str = "p99",
        span: str | None = None,
        seed: int = 1,
        segment: str | None = None,
        baseline: Ledger | None = None,
    ) -> Explanation:
        """Everything that `tailscope explain` says, as data; the options are the command's."""
        from tailscope.explanation import explain
        from tailscope.segments import parse_length
        from tailscope.target import parse

        length_ns = parse_length(segment) if segment else None
        return explain(self, parse(target), span, seed, segment_ns=length_ns, compared=baseline)

    def causes(self, target: str = "p99", span: str | None = None, seed: int = 1) -> Causes:
        """The causes of the target percentile, the most valuable first."""
        return self.explain(target, span, seed).causes

    def segments(
        self, length: str, target: str = "p99", span: str | None = None, seed: int = 1
    ) -> Segments:
        """The recording in pieces of a length (30s, 10m, 1h): typical, worst, best, and why."""
        found = self.explain(target, span, seed, segment=length).segments
        assert found is not None, "a length was given"
        return found


def part(about: dict[str, Any], key: str) -> dict[str, Any]:
    """An object inside ledger.json; empty where it is missing or not an object."""
    value = about.get(key)
    return value if isinstance(value, dict) else {}


def counters(about: dict[str, Any]) -> list[str]:
    """The columns of hardware counters that ledger.json names; never those of something else."""
    listed = about.get("counters")
    found = [one.get("column") for one in listed or () if isinstance(one, dict)]
    known = {*REQUIRED, *IDENTITY, *(f"{cause}_{end}" for cause in CAUSES for end in CAUSE_COLUMNS)}
    return [name for name in found if isinstance(name, str) and name not in known]


def number(about: dict[str, Any], key: str) -> int | None:
    """A count inside ledger.json; None where it is missing or not a number."""
    value = about.get(key)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def open_ledger(paths: Sequence[str | os.PathLike[str]], engine: str = DUCKDB) -> Ledger:
    """Find, check and describe the files of one or several ledgers; `engine` will read them."""
    if not paths:
        raise LedgerError("no ledger was named")
    warnings: list[str] = []
    recordings = [open_recording(storage.normal(path), warnings) for path in paths]
    contents = NOTHING
    readable = []
    for recording in recordings:
        files, found = check_files(recording, warnings)
        if files:
            contents = contents.merge(found)
            readable.append(Recording(recording.path, files, recording.about))
            check_completeness(recording, len(recording.files), found.rows, warnings)
    if not readable:
        raise LedgerError(warnings[-1])
    return Ledger(tuple(readable), contents, tuple(warnings), engine)


def open_recording(path: str, warnings: list[str]) -> Recording:
    """The files below a path, unchecked, and what ledger.json says."""
    files = storage.parquet_files(path)
    if files is None:
        raise LedgerError(f"there is no ledger at {path}")
    if files == (path,):
        return Recording(path, files, {})
    about = read_about(path, warnings)
    if not files:
        if about:
            raise LedgerError(f"the ledger at {path} is empty: no file has been sealed yet")
        raise LedgerError(f"there is no ledger at {path}: no ledger.json and no Parquet file")
    return Recording(path, files, about)


def read_about(folder: str, warnings: list[str]) -> dict[str, Any]:
    """ledger.json as an object; empty (with a warning) where it can't be read."""
    path = f"{folder.rstrip('/')}/ledger.json"
    try:
        about = json.loads(storage.read_text(path))
    except FileNotFoundError:
        warnings.append(
            f"{folder} has no ledger.json: what was measured and what was lost is unknown"
        )
        return {}
    except (OSError, ValueError):
        warnings.append(f"{path} can't be read: what was measured and what was lost is unknown")
        return {}
    if not isinstance(about, dict):
        warnings.append(f"{path} is not a JSON object: it is passed over")
        return {}
    schema = number(about, "schema")
    if "schema" in about and (schema is None or schema < 1):
        raise LedgerError(
            f"{path} says that its schema is {about['schema']!r}, which is no version of it: "
            "tailscope did not write this ledger"
        )
    if schema is not None and schema > SCHEMA:
        raise LedgerError(
            f"{folder} has schema {schema} and this tailscope reads up to {SCHEMA}: "
            "install a newer tailscope"
        )
    return about


def is_whole(path: str) -> bool:
    """Whether a file starts and ends as Parquet does; a truncated one lacks its end."""
    with storage.open_file(path) as file:
        if file.read(4) != MAGIC:
            return False
        size = file.seek(0, os.SEEK_END)
        if size < 12:
            return False
        file.seek(-8, os.SEEK_END)
        footer = file.read(8)
    return footer[4:] == MAGIC and int.from_bytes(footer[:4], "little") <= size - 12


def check_files(recording: Recording, warnings: list[str]) -> tuple[tuple[str, ...], Contents]:
    """The files that can be used, and what is in them."""
    import duckdb

    usable: list[str] = []
    contents = NOTHING
    with duckdb.connect() as engine:
        if storage.is_bucket(recording.path):
            engine.register_filesystem(storage.buckets())
        for path in recording.files:
            try:
                if not is_whole(path):
                    warnings.append(f"{path} is truncated or not a Parquet file: it is left out")
                    continue
                schema = {
                    str(name): str(kind)
                    for name, kind, *_ in engine.execute(
                        "DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning = false)",
                        [exact(path)],
                    ).fetchall()
                }
                if complaint := foreign(schema):
                    warnings.append(f"{path} is Parquet but not a ledger's: {complaint}")
                    continue
                contents = contents.merge(read_contents(engine, path, schema))
                usable.append(path)
            except OSError as error:
                warnings.append(f"{path} can't be read ({error.strerror}): it is left out")
            except duckdb.Error:
                warnings.append(f"{path} is damaged: it is left out")
    return tuple(usable), contents


def read_contents(engine: DuckDBPyConnection, path: str, schema: dict[str, str]) -> Contents:
    """What a file's footer says of it; costs no look at the rows."""
    rows = engine.execute(
        "SELECT coalesce(sum(num_rows), 0)::BIGINT FROM parquet_file_metadata(?)", [exact(path)]
    ).fetchall()[0][0]
    found = engine.execute(
        """
        SELECT path_in_schema,
               min(TRY_CAST(stats_min_value AS BIGINT)),
               max(TRY_CAST(stats_max_value AS BIGINT)),
               coalesce(sum(stats_null_count), 0)::BIGINT,
               bool_and(stats_null_count IS NOT NULL AND
                        (TRY_CAST(stats_min_value AS BIGINT) IS NOT NULL
                         OR stats_null_count = num_values))
        FROM parquet_metadata(?) WHERE path_in_schema LIKE '%_ns' GROUP BY ALL
        """,
        [exact(path)],
    ).fetchall()
    extents = {name: Extent(low, high, nulls, known) for name, low, high, nulls, known in found}
    return Contents(rows, frozenset(schema), extents)


def foreign(schema: dict[str, str]) -> str | None:
    """Why a file with these columns and types is not a ledger's; None if it is."""
    missing = [name for name in REQUIRED if name not in schema]
    if missing:
        return f"no column {', '.join(missing)}"
    wanted = dict(REQUIRED)
    for cause in CAUSES:
        wanted |= {f"{cause}_ns": "BIGINT", f"{cause}_n": "BIGINT"}
    wanted |= dict.fromkeys(COUNTERS, "BIGINT")
    wanted |= {f"{cause}_by": "VARCHAR" for cause in BLAMED}
    for name, kind in wanted.items():
        # A column that is null throughout may come with any type.
        if name in schema and schema[name] not in (kind, "INTEGER", '"NULL"'):
            return f"its column {name} is {schema[name]} and should be {kind}"
    return None


def check_completeness(recording: Recording, files: int, rows: int, warnings: list[str]) -> None:
    """Compare with what the recorder says it sealed."""
    about = recording.about
    if about and about.get("state") != "done":
        warnings.append(
            f"{recording.path} was not ended properly, or is still being written: "
            "its last seconds may be missing"
        )
    sealed = number(about, "files")
    if sealed and files < sealed:
        warnings.append(
            f"{recording.path} has {files} of the {sealed} files that its ledger.json counts: "
            "the rest is not in these figures"
        )
    counted = number(about, "rows")
    if counted and rows < counted and not (sealed and files < sealed):
        warnings.append(
            f"{recording.path} has {rows:,} of the {counted:,} rows that its ledger.json counts"
        )
