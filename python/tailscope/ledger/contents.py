"""What a Parquet file of a ledger holds, from its footer: columns, rows, extents of times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.ledger.causes import BLAMED, CAUSES
from tailscope.ledger.counters import COUNTERS
from tailscope.ledger.parquet import exact

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Without these a Parquet file is not a ledger's.
REQUIRED = {"start_ns": "BIGINT", "span": "VARCHAR", "wall_ns": "BIGINT", "weight": "DOUBLE"}


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


def read_schema(engine: DuckDBPyConnection, path: str) -> dict[str, str]:
    """A file's columns and their types."""
    described = engine.execute(
        "DESCRIBE SELECT * FROM read_parquet(?, hive_partitioning = false)", [exact(path)]
    ).fetchall()
    return {str(name): str(kind) for name, kind, *_ in described}


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
