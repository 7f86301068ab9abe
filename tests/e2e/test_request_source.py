"""`record --span request` beside the truth that servers write down for each request."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder, about
from rig.waiting import until
from thirdparty.built import Lacking
from truth.clients import load, warm_up
from truth.compare import QUERY, Compared, compare, summary, worst
from truth.kinds import KINDS, Kind

pytestmark = pytest.mark.measures

REQUESTS = 600


def recorded(
    record: Callable[..., Recorder], folder: Path, kind: Kind, backend: int
) -> list[Compared]:
    """Every request of a load, with what the ledger says less the truth."""
    port = free_port()
    try:
        command = kind.command(port, backend)
    except Lacking as reason:
        pytest.skip(str(reason))
    with Started([*favoured(), *command]) as started:
        until(lambda: answers(port) or not started.runs, f"the server serves port {port}")
        assert started.runs, started.wait()
        warm_up(port, kind.mix, kind.connections, first=REQUESTS)
        recorder = record("--span", "request", "-p", started.pid).ready()
        began = load(port, kind.mix, REQUESTS, kind.connections)
        recorder.interrupt().clean()
        printed = started.stop(signal.SIGTERM).clean().out
    ledger.check_books(folder / "ledger")
    rows = ledger.query(folder / "ledger", QUERY)
    lost = {key: count for key, count in about(folder / "ledger")["lost"].items() if count}
    assert len(rows) == REQUESTS, f"{len(rows)} rows, {lost} lost"
    # What the truth leaves open is not so much that anything would be right.
    wrong = [(row[0], row[1], row[1] - sum(row[2:]), *row[3:]) for row in rows]
    assert summary(compare(wrong, printed, began))["parts"] < 0.5
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


@pytest.mark.parametrize("kind", KINDS)
def test_where_time_went_is_what_the_server_wrote_down(
    kind: str, record: Callable[..., Recorder], folder: Path, backend: int
) -> None:
    check(recorded(record, folder, KINDS[kind], backend))
