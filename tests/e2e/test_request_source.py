"""`record --span request` beside the truth that servers write down for each request."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder, about
from rig.waiting import until
from truth.clients import Mix, load
from truth.compare import QUERY, Compared, compare, summary, worst

pytestmark = pytest.mark.measures

LOOP = Path(installed.LAB.parent.parent) / "lab" / "truth" / "loopserver.py"
REQUESTS = 600


def recorded(
    record: Callable[..., Recorder],
    folder: Path,
    server: list[object],
    port: int,
    mix: Mix,
    connections: int,
) -> list[Compared]:
    """Every request of a load, with what the ledger says less the truth."""
    with Started([*favoured(), *server]) as started:
        until(lambda: answers(port) or not started.runs, f"{server[0]} serves port {port}")
        assert started.runs, started.wait()
        recorder = record("--span", "request", "-p", started.pid).ready()
        began = load(port, mix, REQUESTS, connections)
        recorder.interrupt().clean()
        printed = started.stop(signal.SIGTERM).clean().out
    ledger.check_books(folder / "ledger")
    rows = ledger.query(folder / "ledger", QUERY)
    lost = {key: count for key, count in about(folder / "ledger")["lost"].items() if count}
    assert len(rows) == REQUESTS, f"{len(rows)} rows, {lost} lost"
    return compare(rows, printed, began)


def check(found: list[Compared]) -> None:
    """Wall times and their parts are those of the truth."""
    shares = summary(found)
    assert shares["requests"] == REQUESTS, shares
    assert shares["wall"] >= 0.99, f"{shares}\n{worst(found)}"
    assert shares["parts"] >= 0.95, f"{shares}\n{worst(found)}"


@pytest.fixture
def backend() -> Iterator[int]:
    """The port of a server that takes as long as it is asked to."""
    port = free_port()
    with Started([*favoured(), installed.LAB / "slowbackend", "--port", port]) as started:
        until(lambda: answers(port) or not started.runs, "the backend serves its port")
        yield port


@pytest.mark.parametrize("connections", [1, 4])
def test_an_event_loop_that_asks_a_backend(
    connections: int, record: Callable[..., Recorder], folder: Path, backend: int
) -> None:
    port = free_port()
    mix = Mix(work=(200, 500), ask=(0, 500, 2000), after=(100, 300), pause=2000 * connections)
    server = [sys.executable, LOOP, port, backend]
    check(recorded(record, folder, server, port, mix, connections))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_pool_of_workers_behind_a_queue(
    workers: int, record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    mix = Mix(work=(200, 500), after=(100,), pause=3000)
    server = [installed.LAB / "poolserver", "--port", port, "--workers", workers]
    found = recorded(record, folder, server, port, mix, 4)
    shares = summary(found)
    assert shares["wall"] >= 0.99, f"{shares}\n{worst(found)}"
    # Where its time went is right, or marked as doubtful.
    doubtful = about(folder / "ledger")["uncovered"].get("ambiguous", 0)
    assert shares["parts"] * REQUESTS + doubtful >= 0.95 * REQUESTS, f"{shares}\n{worst(found)}"
