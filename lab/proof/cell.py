"""One cell of the matrix: a server under load, its fault planted and taken away in turns.

The machine's speed drifts over minutes, so phases with and without the fault alternate against the
same process at the same rate. One recording runs through all of them and is cut in two afterwards.

Where that shows that the fault is too small to be the top cause of the tail, the cell is measured
again with twice the fault.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from proof.faults import ONE_SIZE, SIZES
from proof.machine import (
    OTHER_CPU,
    SERVER_CPU,
    TAILSCOPE,
    ProofError,
    alone_on_server_cpu,
    awake_cpus,
    end,
    foreign_cpu_s,
    move,
    running,
    until,
)
from proof.servers import SERVERS, Server

#: What follows a change of phase and is left out: backlogs drain, caches fill.
SETTLING_S = 0.5
PAIRS = 6
#: The two ledgers of a cell: the phases with the fault, and those without it.
PARTS = ("planted", "calm")
#: What spoils a cell: so much CPU time of others, as a share of one CPU; a machine whose speed
#: changes so that of phases of one kind the slowest median is so many times the fastest. And how
#: often a cell is repeated then.
FOREIGN, DRIFT, REPEATS = 0.02, 1.2, 1


@dataclass(frozen=True)
class Window:
    """A piece of time that counts, in Unix ns."""

    planted: bool
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Effect:
    """What a fault does to the spans (ns)."""

    p99_ns: float
    calm_p50_ns: float
    calm_p99_ns: float

    @property
    def enough(self) -> bool:
        """Whether the fault must be the top cause of the tail.

        It doubles p99, and adds to it twice what lies between the median and p99 without it. Were
        that more than the fault adds, the spans' own spread would be the top cause, and rightly.
        """
        added = self.p99_ns - self.calm_p99_ns
        return added >= self.calm_p99_ns and added >= 2 * (self.calm_p99_ns - self.calm_p50_ns)


def measure(server: str, fault: str, seconds: float, folder: Path) -> dict[str, Any]:
    """Measures for about so many seconds, and leaves two ledgers in the folder, as `PARTS`.

    Returns what else is known of the phases: `size`, the fault's (`faults.SIZES`), and whether that
    is `enough` (`Effect`); `foreign`, the CPU time that others took, as a share of one CPU;
    `drift`, how many times the slowest phase's median was the fastest's; and what the load's
    `client` says of the whole time.
    """
    sizes = SIZES[:1] if fault in ONE_SIZE else SIZES
    for size in sizes:
        found = undisturbed(server, fault, size, seconds, folder)
        if found["enough"]:
            break
    return found


def undisturbed(server: str, fault: str, size: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Measures with a fault of a size; again if that was spoiled (`FOREIGN`, `DRIFT`)."""
    for _ in range(1 + REPEATS):
        found = attempt(server, fault, seconds, folder, size)
        if found["foreign"] <= FOREIGN and found["drift"] <= DRIFT:
            break
    return found


def attempt(server: str, fault: str, seconds: float, folder: Path, size: int = 1) -> dict[str, Any]:
    """Measures once."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    phase_s = max(seconds / (2 * PAIRS), 2 * SETTLING_S)
    with (
        alone_on_server_cpu(),
        awake_cpus(fault),
        loaded(server, fault, size, seconds, folder) as one,
    ):
        before, began = foreign_cpu_s(), time.monotonic()
        windows = record(one, fault, phase_s, folder / "whole")
        foreign = (foreign_cpu_s() - before) / (time.monotonic() - began)
    planted, calm = (folder / part for part in PARTS)
    for part in (planted, calm):
        kept = [window for window in windows if window.planted == (part is planted)]
        cut(folder / "whole", part, kept)
    shutil.rmtree(folder / "whole")
    effect = Effect(percentiles(planted)[1], *percentiles(calm))
    return {
        "size": size,
        "enough": fault == "none" or effect.enough,
        "foreign": foreign,
        "drift": max(drift(planted), drift(calm)),
        "client": client_view(folder / "client.json"),
    }


@contextmanager
def loaded(server: str, fault: str, size: int, seconds: float, folder: Path) -> Iterator[Server]:
    """A server under load, warm; what the client says goes to client.json."""
    with SERVERS[server](fault, size) as one:
        load = one.load(seconds + one.warm_up_s + 30)
        with (
            (folder / "client.json").open("w") as out,
            running(load or ["true"], stdout=out) as client,
        ):
            time.sleep(one.warm_up_s)
            yield one
            if load and client.poll() is not None:
                raise ProofError(f"the load ended early with code {client.returncode}")
            end(client, signal.SIGINT)


def percentiles(ledger: Path) -> tuple[float, float]:
    """The median and p99 (ns) of a ledger of which no row was left out."""
    with duckdb.connect() as engine:
        found = engine.execute(
            "SELECT quantile_disc(wall_ns, [0.5, 0.99]) FROM read_parquet($file)",
            {"file": str(ledger / "000000.parquet")},
        ).fetchall()[0][0]
    return float(found[0]), float(found[1])


def drift(ledger: Path) -> float:
    """How many times the median of the slowest phase is that of the fastest."""
    with duckdb.connect() as engine:
        found = engine.execute(
            "WITH spans AS (SELECT start_ns - min(start_ns) OVER () AS since, wall_ns "
            "FROM read_parquet($file)), "
            "medians AS (SELECT quantile_disc(wall_ns, 0.5) AS median FROM spans "
            "GROUP BY since * $phases // (SELECT max(since) + 1 FROM spans)) "
            "SELECT max(median) / min(median) FROM medians",
            {"file": str(ledger / "000000.parquet"), "phases": PAIRS},
        ).fetchall()[0][0]
    return float(found)


def client_view(said: Path) -> dict[str, Any]:
    """What the lab's load reports of the whole time, less its histogram; else nothing."""
    text = said.read_text()
    report = json.loads(text) if text.startswith("{") else {}
    return {key: report[key] for key in ("rate", "errors", "latency_ns", "lag_ns") if key in report}


def record(server: Server, fault: str, phase_s: float, ledger: Path) -> list[Window]:
    """One recording, through all phases."""
    command = [TAILSCOPE, "record", "-p", server.pid, "--span", server.source, "-o", ledger]
    windows = []
    said = ledger.with_name("recorder.log")
    with (
        said.open("w+") as log,
        running(command, on=(SERVER_CPU, OTHER_CPU), how=signal.SIGINT, stderr=log) as recorder,
    ):
        ready = lambda: "recording " in said.read_text()  # noqa: E731
        until(lambda: ready() or recorder.poll() is not None, "the recorder records")
        move(recorder.pid, OTHER_CPU)  # it has measured what an interrupt takes, with both
        for pair in range(PAIRS):
            # With, without, without, with: a drift that is steady strikes both alike.
            for planted in (True, False) if pair % 2 == 0 else (False, True):
                windows.append(phase(server, planted and fault != "none", planted, phase_s))
        if recorder.poll() is not None:
            raise ProofError(f"the recorder ended early: {said.read_text()[-500:]}")
    if recorder.returncode != 0:
        raise ProofError(f"the recorder failed: {said.read_text()[-500:]}")
    return windows


def phase(server: Server, plant: bool, planted: bool, seconds: float) -> Window:
    """One phase; what counts of it begins when things have settled."""
    block: AbstractContextManager[None] = server.planted() if plant else nullcontext()
    with block:
        time.sleep(SETTLING_S)
        begin_ns = time.time_ns()
        time.sleep(seconds - SETTLING_S)
        return Window(planted, begin_ns, time.time_ns())


def cut(whole: Path, part: Path, windows: list[Window]) -> None:
    """A ledger of the spans that began in some windows, which are laid end to end.

    Without the gaps, blocks of time (the bootstrap's) hold spans throughout. The first window keeps
    its time; the later ones move up.
    """
    part.mkdir()
    moved, begins_ns = [], windows[0].begin_ns
    for window in windows:
        moved.append((window.begin_ns, window.end_ns, window.begin_ns - begins_ns))
        begins_ns += window.end_ns - window.begin_ns
    with duckdb.connect() as engine:
        engine.execute("CREATE TABLE windows (begin_ns BIGINT, end_ns BIGINT, by_ns BIGINT)")
        engine.executemany("INSERT INTO windows VALUES (?, ?, ?)", moved)
        engine.execute(
            "COPY (SELECT spans.* REPLACE (start_ns - by_ns AS start_ns) "
            "FROM read_parquet($files, hive_partitioning = false) AS spans JOIN windows "
            "ON start_ns >= begin_ns AND start_ns < end_ns ORDER BY start_ns) "
            f"TO '{part / '000000.parquet'}' (FORMAT parquet, COMPRESSION zstd)",
            {"files": str(whole / "**" / "*.parquet")},
        )
        count = f"SELECT count(*) FROM read_parquet('{part / '000000.parquet'}')"
        rows = engine.execute(count).fetchall()[0][0]
    if not rows:
        raise ProofError("no span was recorded")
    about = json.loads((whole / "ledger.json").read_text())
    size = (part / "000000.parquet").stat().st_size
    about |= {"rows": rows, "files": 1, "bytes": size, "started_ns": windows[0].begin_ns}
    about |= {"ended_ns": begins_ns}
    about.pop("crc32", None)  # of the text as it was
    (part / "ledger.json").write_text(json.dumps(about, indent=2))
