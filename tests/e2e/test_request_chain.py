"""A chain of two servers that are both recorded: `explain --through`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder
from rig.waiting import until
from truth.clients import Mix, load

SERVERS = Path(installed.LAB.parent.parent) / "lab" / "truth"
LOOP, CROWD = SERVERS / "loopserver.py", SERVERS / "crowdserver.py"
REQUESTS = 400
ASKED_US = (500, 2000, 8000)


def test_downstream_time_opens_into_the_causes_of_the_other_server(
    record: Callable[..., Recorder], folder: Path
) -> None:
    """The backend sleeps; what the front server saw of it is the same time, less the way there."""
    port, backend_port = free_port(), free_port()
    backend = [*favoured(), installed.LAB / "slowbackend", "--port", backend_port]
    with Started(backend) as behind:
        until(lambda: answers(backend_port) or not behind.runs, "the backend serves its port")
        front = [*favoured(), sys.executable, LOOP, port, backend_port]
        with Started(front) as before:
            until(lambda: answers(port) or not before.runs, "the front server serves its port")
            recorders = [
                record("--span", "request", *options, "-p", of.pid, name=name).ready()
                # The front server's requests all have names of their own.
                for name, of, options in (
                    ("backend", behind, ()),
                    ("front", before, ("--no-names",)),
                )
            ]
            mix = Mix(work=(100,), ask=ASKED_US, after=(100,), pause=2000)
            load(port, mix, REQUESTS, 2)
            for recorder in recorders:
                recorder.interrupt().clean()
    for name in ("backend", "front"):
        ledger.check_books(folder / name)
    explained = ledger.explain(
        folder / "front", options=("-p", "p90", "--through", str(folder / "backend"))
    )
    chain = explained["through"]
    every, tail = chain["every"], chain["tail"]
    assert every["spans"] == REQUESTS
    assert every["joined"] >= 0.99 * every["asked"] >= 0.5 * REQUESTS, every
    assert abs(chain["clock_offset_ns"]) < 1e6, chain
    for opened in (every, tail):
        parts = sum(opened["causes"].values()) + opened["path_ns"] + opened["closed_ns"]
        assert parts == pytest.approx(opened["downstream_ns"], rel=0.01), opened
        # On a busy machine the backend also waits for a CPU.
        waited = sum(opened["causes"].get(cause, 0) for cause in ("sleep", *ledger.WAIT_FOR_CPU))
        assert waited >= 0.8 * opened["downstream_ns"], opened
        assert opened["causes"]["sleep"] >= 0.5 * opened["downstream_ns"], opened
        assert opened["names"]["GET /ask"] > 0
    assert tail["downstream_ns"] >= 7e6, tail


def test_a_ledger_without_connections_is_refused(
    record: Callable[..., Recorder], folder: Path
) -> None:
    for name, source in (("front", "request"), ("backend", "syscall:ready..send")):
        port = free_port()
        with Started([sys.executable, CROWD, port]) as server:
            until(lambda port=port: answers(port), "the server serves its port")
            recorder = record("--span", source, "-p", server.pid, name=name).ready()
            load(port, Mix(pause=100), 5, 1)
            recorder.interrupt().clean()
    command = [installed.tailscope(), "explain", folder / "front", "--through", folder / "backend"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2, done
    assert "record both servers with --span request" in done.stderr
