"""The tables of stacks beside a ledger's rows: `_stacks/samples-*.pq` and `_stacks/stacks-*.pq`
(docs/reference/schema.md).

They are read by DuckDB in this process, whichever engine reads the rows: of a span's samples only
those are loaded that a question needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

from tailscope.ledger import checksum, storage
from tailscope.ledger.checksum import State
from tailscope.ledger.ledger import Ledger, number, part
from tailscope.ledger.parquet import literal

FOLDER = "_stacks"
MEMORY_LIMIT = "1GB"
#: Bounds of numbers in samples: Unix ns, ns, and ids of processes and threads.
LATEST_NS, LONGEST_NS, LARGEST_ID = 1 << 62, 1 << 58, (1 << 31) - 1
#: What the kernel's code and code in no file have as their module.
KERNEL, NOWHERE = "[kernel]", "[unknown]"
#: What code has that a process made at run time, and functions of Python that are not known.
JIT, PYTHON = "[JIT]", "[Python]"


@dataclass(frozen=True)
class Frame:
    """A function on a stack; `function` is empty where its file does not name it."""

    function: str
    module: str
    address: int
    #: It is a function of Python, and `module` its source.
    python: bool = False

    @property
    def name(self) -> str:
        """The function, or where the code is: `libc.so.6+0x9f2c0`."""
        if self.function:
            return self.function
        if self.module == JIT:
            return "JIT code"
        if self.module == PYTHON:
            return "Python code"
        return f"{Path(self.module).name}+{self.address:#x}"


@dataclass(frozen=True)
class Stack:
    """A chain of functions, the innermost first; `whole` if it reaches the thread's first."""

    frames: tuple[Frame, ...]
    whole: bool


@dataclass(frozen=True)
class Samples:
    """Samples of some spans, summed by span, cause and stack; each array has one entry for each."""

    row: NDArray[np.int64]
    wall_ns: NDArray[np.int64]
    weight: NDArray[np.float64]
    cause: tuple[str, ...]
    ns: NDArray[np.int64]
    #: The key of `stacks`.
    stack: NDArray[np.int64]
    stacks: dict[int, Stack]


@dataclass(frozen=True)
class Moments:
    """Samples one by one, in order of time; each array has one entry for each."""

    #: The number of the recording.
    ledger: NDArray[np.int64]
    pid: NDArray[np.int64]
    tid: NDArray[np.int64]
    #: Unix ns. Of a wait: its start.
    time_ns: NDArray[np.int64]
    ns: NDArray[np.int64]
    cause: tuple[str, ...]
    #: The key of `stacks`.
    stack: NDArray[np.int64]
    stacks: dict[int, Stack]
    #: How many samples there are in all.
    total: int


@dataclass(frozen=True)
class Sampling:
    """What is known of all samples of one span name."""

    samples: int
    #: The part (0 to 1) whose callers are not known back to the thread's first function.
    cut_share: float
    period_ns: int
    lost: int
    warnings: tuple[str, ...]
    #: The part (0 to 1) with code made at run time whose function is not known.
    unnamed_jit_share: float = 0.0
    #: The part (0 to 1) whose innermost code of a file has no name.
    unnamed_share: float = 0.0


class StackTables:
    """The tables of all recordings of a ledger that have some; to be closed."""

    def __init__(self, ledger: Ledger) -> None:
        self.warnings: list[str] = []
        self.connection = duckdb.connect(
            config={
                "memory_limit": MEMORY_LIMIT,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            }
        )
        self.connection.execute("SET enable_progress_bar = false")
        self.lost, self.period_ns, self.is_empty = 0, 0, True
        selects: dict[str, list[str]] = {"samples": [], "stacks": []}
        for place, recording in enumerate(ledger.recordings):
            found = {name: self.files(recording.path, name) for name in selects}
            if not all(found.values()):
                continue
            sampling = part(recording.about, "stacks")
            self.period_ns = max(self.period_ns, number(sampling, "period_ns") or 0)
            self.lost += number(part(recording.about, "lost"), "stacks") or 0
            for name, files in found.items():
                listed = ", ".join(literal(file) for file in files)
                selects[name].append(
                    f"SELECT {place}::BIGINT AS ledger, * FROM read_parquet([{listed}])"
                )
        if selects["samples"]:
            self.is_empty = False
            for name, parts in selects.items():
                if name == "stacks":  # ledgers from before have none of these
                    parts.append("SELECT 0::BIGINT AS python WHERE false")
                joined = " UNION ALL BY NAME ".join(parts)
                self.connection.execute(f"CREATE VIEW {name} AS {joined}")

    def files(self, path: str, name: str) -> list[str]:
        """A table's files that are as they were written."""
        if storage.is_bucket(path) or not Path(path).is_dir():
            return []
        files = sorted(str(file) for file in (Path(path) / FOLDER).glob(f"{name}-*.pq"))
        states = checksum.check_all(files)
        whole = [
            file for file, found in zip(files, states, strict=True) if found.state is State.WHOLE
        ]
        if len(whole) < len(files):
            self.warnings.append(
                f"{len(files) - len(whole)} files of stacks are damaged and not used"
            )
        return whole

    def sampling(self, span: str) -> Sampling:
        """What is known of all samples of a span name."""
        count, cut, unnamed_jit, unnamed = self.one(
            "SELECT count(*), count(*) FILTER (NOT coalesce(w.whole, false)), "
            "count(*) FILTER (coalesce(w.unnamed_jit, false)), "
            "count(*) FILTER (coalesce(w.innermost = '', false)) FROM samples "
            "LEFT JOIN (SELECT ledger, stack, bool_and(whole = 1) AS whole, "
            "bool_or(module = ? AND function = '') AS unnamed_jit, "
            "arg_min(function, depth) FILTER (NOT starts_with(module, '[')) AS innermost "
            "FROM stacks GROUP BY ledger, stack) AS w USING (ledger, stack) WHERE span = ?",
            [JIT, span],
        )
        return Sampling(
            samples=count,
            cut_share=cut / count if count else 0.0,
            period_ns=self.period_ns,
            lost=self.lost,
            warnings=tuple(self.warnings),
            unnamed_jit_share=unnamed_jit / count if count else 0.0,
            unnamed_share=unnamed / count if count else 0.0,
        )

    def one(self, text: str, values: Sequence[object]) -> tuple[int, ...]:
        """The one row of an answer."""
        row = self.connection.execute(text, values).fetchone()
        assert row is not None
        return row

    def samples(self, span: str, least_ns: int, most_ns: int) -> Samples:
        """The samples of the spans of a name that took so long (ns, both included)."""
        found = self.connection.execute(
            "SELECT ledger << 40 | row AS row, any_value(wall_ns) AS wall_ns, "
            "any_value(weight) AS weight, cause, sum(ns)::BIGINT AS ns, "
            "ledger << 40 | stack AS stack FROM samples "
            "WHERE span = ? AND wall_ns BETWEEN ? AND ? "
            "GROUP BY ALL ORDER BY row, cause, stack",
            [span, least_ns, most_ns],
        ).fetchnumpy()
        stacks = np.unique(found["stack"])
        return Samples(
            row=found["row"],
            wall_ns=found["wall_ns"],
            weight=found["weight"],
            cause=tuple(found["cause"]),
            ns=found["ns"],
            stack=found["stack"],
            stacks=dict(self.stacks(stacks)),
        )

    def moments(self, span: str, most: int) -> Moments:
        """The samples of the spans of a name; of more than `most`, those of the slowest spans.

        Numbers that no recorder writes are left out.
        """
        usable = (
            f"time_ns BETWEEN 0 AND {LATEST_NS} AND ns BETWEEN 0 AND {LONGEST_NS} "
            f"AND pid BETWEEN 0 AND {LARGEST_ID} AND tid BETWEEN 0 AND {LARGEST_ID} "
            "AND cause IS NOT NULL AND span = ?"
        )
        (total,) = self.one(f"SELECT count(*) FROM samples WHERE {usable}", [span])
        found = self.connection.execute(
            "SELECT * FROM (SELECT ledger, pid, tid, time_ns, ns, cause, "
            f"ledger << 40 | stack AS stack FROM samples WHERE {usable} "
            f"ORDER BY wall_ns DESC, ledger, row, time_ns, tid LIMIT {most}) "
            "ORDER BY time_ns, ledger, pid, tid, cause, stack, ns",
            [span],
        ).fetchnumpy()
        cause = tuple(found.pop("cause"))
        stacks = dict(self.stacks(np.unique(found["stack"])))
        return Moments(cause=cause, stacks=stacks, total=total, **found)

    def stacks(self, wanted: NDArray[np.int64]) -> Iterator[tuple[int, Stack]]:
        """Stacks by their keys."""
        self.connection.execute("CREATE OR REPLACE TEMP TABLE wanted (stack BIGINT)")
        if len(wanted):
            self.connection.execute(
                "INSERT INTO wanted SELECT unnest(?::BIGINT[])", [wanted.tolist()]
            )
        rows = self.connection.execute(
            "SELECT ledger << 40 | stack AS key, function, module, address, coalesce(python, 0), "
            "whole FROM stacks "
            "WHERE ledger << 40 | stack IN (SELECT stack FROM wanted) ORDER BY key, depth"
        ).fetchall()
        frames: dict[int, list[Frame]] = {}
        whole: dict[int, bool] = {}
        for key, function, module, address, python, is_whole in rows:
            frame = Frame(function, module, address, bool(python))
            frames.setdefault(key, []).append(frame)
            whole[key] = bool(is_whole)
        for key, found in frames.items():
            yield key, Stack(tuple(found), whole[key])

    def close(self) -> None:
        """Let go of the files."""
        self.connection.close()
