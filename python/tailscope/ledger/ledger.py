"""Opening a ledger: which files belong to it, which can be read, and what its recorder says about
itself.

Everything that is wrong but can be lived with becomes a sentence in `Ledger.warnings`; what can't
be lived with is a `LedgerError`. A ledger is often looked at while something is broken, so the
reader takes what is there.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tailscope.errors import LedgerError
from tailscope.ledger import archive, checksum, completeness, storage
from tailscope.ledger.causes import CAUSES
from tailscope.ledger.checksum import State
from tailscope.ledger.completeness import Files
from tailscope.ledger.contents import (
    NOTHING,
    REQUIRED,
    Contents,
    foreign,
    read_contents,
    read_schema,
)
from tailscope.ledger.counters import COUNTERS, in_order
from tailscope.ledger.uncovered import (
    AMBIGUOUS,
    CONTINUED,
    ENCRYPTED,
    HANDSHAKES,
    NO_ROW,
    UNNAMED,
    without_row,
)

#: The newest version of docs/reference/schema.md that this reader knows.
SCHEMA = 1
#: Read where they are there; they identify a span in the list of the worst.
IDENTITY = ("id", "pid", "tid", "cpu")
#: The connection of a request, and the call of another server that it waited for the longest.
CHAIN = ("connection", "asked_connection", "asked_start_ns", "asked_ns")
#: The two halves of the trace id that a request came with, and its parent id.
TRACE = ("trace_high", "trace_low", "trace_parent")
#: What a cause's columns end in.
CAUSE_COLUMNS = ("ns", "n", "by")
#: The engine that is there without anything else.
DUCKDB = "duckdb"


@dataclass(frozen=True)
class Recording:
    """One recording: its folder (or single file), its readable files, and its ledger.json.

    Names are paths, or URLs of a bucket (`tailscope.ledger.storage`).
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
    #: What is not in the figures, or may be wrong in them: for the first line of each output.
    notices: tuple[str, ...] = field(default=())
    #: Who does the O(rows) work: `duckdb`, or an engine's address (`tailscope.engines.connect`).
    engine: str = DUCKDB

    @property
    def stored_causes(self) -> tuple[str, ...]:
        """The causes that have columns here; they may still be null throughout."""
        return tuple(cause for cause in CAUSES if f"{cause}_ns" in self.contents.columns)

    @property
    def stored_counters(self) -> tuple[str, ...]:
        """The hardware counters that have columns here; they may still be null throughout."""
        named = (name for recording in self.recordings for name in counters(recording.about))
        found = in_order([*COUNTERS, *named])
        return tuple(name for name in found if name in self.contents.columns)

    def is_null(self, cause: str) -> bool:
        """Whether a cause was not measured: its column is null throughout, or not there."""
        extent = self.contents.extents.get(f"{cause}_ns")
        return extent is None or (extent.known and extent.nulls == self.contents.rows)


def part(about: dict[str, Any], key: str) -> dict[str, Any]:
    """An object inside ledger.json; empty where it is missing or not an object."""
    value = about.get(key)
    return value if isinstance(value, dict) else {}


def counters(about: dict[str, Any]) -> list[str]:
    """The columns of hardware counters that ledger.json names; never those of something else."""
    listed = about.get("counters")
    found = [one.get("column") for one in listed or () if isinstance(one, dict)]
    known = {*REQUIRED, *IDENTITY, *CHAIN, *TRACE}
    known |= {f"{cause}_{end}" for cause in CAUSES for end in CAUSE_COLUMNS}
    return [name for name in found if isinstance(name, str) and name not in known]


def number(about: dict[str, Any], key: str) -> int | None:
    """A count inside ledger.json; None where it is missing or not a number."""
    value = about.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value)


def open_ledger(paths: Sequence[str | os.PathLike[str]], engine: str = DUCKDB) -> Ledger:
    """Find, check and describe the files of one or several ledgers; `engine` will read them."""
    if not paths:
        raise LedgerError("no ledger was named")
    warnings: list[str] = []
    found = [open_recording(storage.normal(path), engine, warnings) for path in paths]
    archive.refuse_twice(
        [
            (one.recording.path, one.recording.files, [(c.bytes, c.crc32) for c in one.states])
            for one in found
        ]
    )
    contents = NOTHING
    readable = []
    for one in found:
        files, its = check_files(one, warnings)
        one.files.used, one.files.rows = len(files), its.rows
        if files:
            contents = contents.merge(its)
            readable.append(replace(one.recording, files=files))
    notices = tuple(completeness.notices([one.files for one in found]))
    if not readable:
        raise LedgerError(notices[0] if len(warnings) > 1 else warnings[-1])
    return Ledger(tuple(readable), contents, tuple(warnings), notices, engine)


@dataclass(frozen=True)
class Opened:
    """A recording whose files are not read yet, and what their checksums say."""

    recording: Recording
    states: tuple[checksum.Checked, ...]
    files: Files


def open_recording(path: str, engine: str, warnings: list[str]) -> Opened:
    """The files below a path, what their checksums say, and what ledger.json says."""
    names = storage.ledger_files(path)
    if names is None:
        raise LedgerError(f"there is no ledger at {path}")
    if names == (path,):
        files: tuple[str, ...] = names
        about, json_state = {}, None
    else:
        shelf = archive.sort_out(path, names)
        files = shelf.files
        about, json_state = read_about(path, warnings)
        if shelf.others:
            warnings.append(
                f"{path} has other ledgers in it, which are not part of it: "
                f"{archive.shortened(shelf.others)}"
            )
        if not files:
            raise LedgerError(why_empty(path, about, json_state))
    # A Spark reads buckets by itself: all of a ledger would have to come here for its checksums.
    elsewhere = storage.is_bucket(path) and engine.startswith(("spark:", "sc:"))
    states = [checksum.Checked(State.UNCHECKED) for _ in files]
    if not elsewhere:
        states = checksum.check_all(files)
    marked = any(one.state in (State.WHOLE, State.DAMAGED) for one in states)
    if json_state is State.UNMARKED and marked:
        # Files have checksums since ledger.json has: this one has lost its own.
        json_state = State.DAMAGED
    if json_state is State.DAMAGED:
        warnings.append(f"{path}/ledger.json is damaged and not used")
        about = {}
    if json_state is State.WHOLE or (json_state is State.DAMAGED and marked):
        states = [
            replace(one, state=State.DAMAGED) if one.state is State.UNMARKED else one
            for one in states
        ]
    unchecked = "Spark reads them from the bucket by itself" if elsewhere else ""
    if any(one.state is State.UNMARKED for one in states):
        unchecked = "no checksums: an older tailscope or another program wrote it"
    account = Files(
        path,
        len(files),
        number(about, "files"),
        number(about, "rows"),
        json_damaged=json_state is State.DAMAGED,
        unchecked=unchecked,
    )
    if about and about.get("state") != "done":
        warnings.append(
            f"{path} was cut off, or is still being written: its last seconds may be missing"
        )
    return Opened(Recording(path, files, about), tuple(states), account)


def why_empty(path: str, about: dict[str, Any], state: State | None) -> str:
    """Why a folder has no file of a ledger."""
    if state is State.DAMAGED:
        return f"there is no ledger at {path}: ledger.json is damaged and no Parquet file is there"
    if not about:
        return f"there is no ledger at {path}: no ledger.json and no Parquet file"
    if sealed := number(about, "files"):
        return f"INCOMPLETE: the ledger at {path} has none of the {sealed} files that it had"
    if about.get("state") == "done":
        if reasons := without_row(counted(about)):
            return f"the ledger at {path} has no row: {reasons}"
        return f"the ledger at {path} is empty: no span ended while it was recorded"
    goes_on = storage.is_being_written(path)
    if goes_on:
        return (
            f"the recording at {path} still runs, and no file has been sealed yet; the first is "
            "sealed a second after the end of the first span"
        )
    unless = ", unless it still runs elsewhere" if goes_on is None else ""
    return (
        f"the recording at {path} was cut off before its first file was sealed (by kill -9, a "
        f"crash or a power failure){unless}: no span is left. Files are sealed 1, 2, 5 and "
        "10 s after the first span, and every 10 s from then on"
    )


def counted(about: dict[str, Any]) -> dict[str, int]:
    """What ledger.json says of requests that are no rows, or whose rows say too little."""
    counts = part(about, "uncovered")
    found = {
        key: number(counts, key)
        for key in (*NO_ROW, CONTINUED, ENCRYPTED, HANDSHAKES, AMBIGUOUS, UNNAMED)
    }
    return {key: max(count, 0) for key, count in found.items() if count is not None}


def read_about(folder: str, warnings: list[str]) -> tuple[dict[str, Any], State | None]:
    """ledger.json as an object, and its state: None where it is not there.

    Where it can't be read the object is empty, with a warning.
    """
    path = f"{folder.rstrip('/')}/ledger.json"
    try:
        text = storage.read_bytes(path)
    except FileNotFoundError:
        warnings.append(
            f"{folder} has no ledger.json: what was measured and what was lost is unknown"
        )
        return {}, None
    except OSError as error:
        why = error.strerror or error
        warnings.append(f"{path} can't be read ({why}): what was measured and lost is unknown")
        return {}, State.DAMAGED
    state = checksum.check_json(text)
    if state is State.DAMAGED:
        return {}, state
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        # No recorder nests objects so deep that Python gives up.
        return {}, State.DAMAGED
    if not isinstance(about, dict):
        return {}, State.DAMAGED
    check_schema(folder, path, about)
    return about, state


def check_schema(folder: str, path: str, about: dict[str, Any]) -> None:
    """Refuse what no tailscope, or a newer one, wrote."""
    schema = number(about, "schema")
    if "schema" in about and (schema is None or schema < 1):
        raise LedgerError(
            f"{path} says that its schema is {about['schema']!r}, which does not exist: "
            "tailscope did not write this ledger"
        )
    if schema is not None and schema > SCHEMA:
        raise LedgerError(
            f"{folder} has schema {schema} and this tailscope reads up to {SCHEMA}; "
            "install a newer tailscope"
        )


def check_files(opened: Opened, warnings: list[str]) -> tuple[tuple[str, ...], Contents]:
    """The files that can be used, and what is in them. A damaged one is not even looked into."""
    import duckdb

    usable: list[str] = []
    contents = NOTHING
    recording = opened.recording
    seen: dict[tuple[int, int], str] = {}

    def leave_out(why: str, sentence: str) -> None:
        opened.files.leave_out(why, path)
        warnings.append(f"{path} {sentence}")

    with duckdb.connect() as engine:
        if storage.is_bucket(recording.path):
            engine.register_filesystem(storage.buckets())
        for path, checked in zip(recording.files, opened.states, strict=True):
            content = (checked.bytes, checked.crc32)
            try:
                if checked.error:
                    leave_out("unreadable", f"can't be read ({checked.error}): it is left out")
                elif checked.state is State.TRUNCATED:
                    leave_out("truncated", "is truncated or not a Parquet file: it is left out")
                elif checked.state is State.DAMAGED:
                    leave_out("damaged", "is damaged: it is left out")
                elif checked.state is State.WHOLE and content in seen:
                    leave_out("copied", f"is a copy of {seen[content]}: it is left out")
                elif complaint := foreign(schema := read_schema(engine, path)):
                    leave_out("foreign", f"is Parquet but not a ledger's: {complaint}")
                else:
                    contents = contents.merge(read_contents(engine, path, schema))
                    usable.append(path)
                    seen[content] = path
            except OSError as error:
                leave_out("unreadable", f"can't be read ({error.strerror}): it is left out")
            except duckdb.Error:
                leave_out("damaged", "is damaged: it is left out")
    return tuple(usable), contents
