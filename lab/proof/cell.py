"""One cell of the matrix: a server under load, its fault planted and taken away in turns.

The machine's speed drifts over minutes, so phases with and without the fault alternate against the
same process at the same rate. One recording runs through all of them and is cut in two afterwards.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from proof.machine import (
    OTHER_CPU,
    TAILSCOPE,
    ProofError,
    awake_cpus,
    end,
    running,
    until,
)
from proof.servers import SERVERS, Server

#: What follows a change of phase and is left out: backlogs drain, caches fill.
SETTLING_S = 0.5
PAIRS = 6


@dataclass(frozen=True)
class Window:
    """A piece of time that counts, in Unix ns."""

    planted: bool
    begin_ns: int
    end_ns: int


@dataclass(frozen=True)
class Measured:
    """A cell's two ledgers, and what the load's client says of the whole time."""

    planted: Path
    calm: Path
    client: dict[str, Any]


def measure(server: str, fault: str, seconds: float, folder: Path) -> Measured:
    """Measures for about so many seconds; the ledgers are left in the folder."""
    phase_s = max(seconds / (2 * PAIRS), 2 * SETTLING_S)
    with awake_cpus(fault), SERVERS[server](fault) as one:
        load = one.load(seconds + one.warm_up_s + 30)
        said = folder / "client.json"
        with said.open("w") as out, running(load or ["true"], stdout=out) as client:
            time.sleep(one.warm_up_s)
            windows = record(one, fault, phase_s, folder / "whole")
            if load and client.poll() is not None:
                raise ProofError(f"the load ended early with code {client.returncode}")
            end(client, signal.SIGINT)
    for name, planted in (("planted", True), ("calm", False)):
        kept = [window for window in windows if window.planted == planted]
        cut(folder / "whole", folder / name, kept)
    shutil.rmtree(folder / "whole")
    return Measured(folder / "planted", folder / "calm", client_view(said))


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
        running(command, on=OTHER_CPU, how=signal.SIGINT, stderr=log) as recorder,
    ):
        ready = lambda: "recording " in said.read_text()  # noqa: E731
        until(lambda: ready() or recorder.poll() is not None, "the recorder records")
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
    (part / "ledger.json").write_text(json.dumps(about, indent=2))
