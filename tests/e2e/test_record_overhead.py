"""`record --overhead`: attached for a part of the time, and measured against the rest."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import bpf, installed, ledger
from rig.cost import calibrate_briefly
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.waiting import until


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short calibration of this machine."""
    path = tmp_path_factory.mktemp("cost") / "cost.json"
    calibrate_briefly(path)
    return path


@pytest.fixture
def served() -> Iterator[Started]:
    """A server that has a request all the time."""
    port, stop = free_port(), threading.Event()

    def ask() -> None:
        with (
            suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", port), timeout=30) as connection,
        ):
            connection.sendall(b"set k 0 0 2\r\nok\r\n")
            while connection.recv(4096) and not stop.is_set():
                connection.sendall(b"get k\r\n")

    with Started([installed.LAB / "kvserver", "--bare", "--port", port]) as started:
        until(lambda: answers(port) or not started.runs, f"the server serves port {port}")
        client = threading.Thread(target=ask)
        client.start()
        yield started
        stop.set()
        client.join()


@pytest.fixture
def with_overhead(
    record: Callable[..., Recorder], calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Recorder]:
    """Records with a budget, by that calibration."""
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    return lambda budget, *rest: record("--overhead", budget, "--span", "request", *rest)


# Its client asks without a pause, so a recorder that has no CPU loses entries.
@pytest.mark.measures
def test_the_recorder_is_attached_for_a_part_of_the_time(
    with_overhead: Callable[..., Recorder], served: Started, folder: Path
) -> None:
    recorder = with_overhead("10%", "-p", served.pid).ready()

    def attached() -> bool:
        assert recorder.runs, recorder.wait()
        return any(kind == "link" for kind, _ in bpf.held_by(recorder.pid))

    for _ in range(2):
        until(attached, "it attaches")
        until(lambda: not attached(), "it detaches")
    said = recorder.interrupt().clean().err
    assert "overhead: " in said and "of 10.0 % that were allowed" in said, said
    ledger.check_books(folder / "ledger")
    found = about(folder / "ledger")
    assert found["rows"] == found["seen"] == ledger.count(folder / "ledger") > 100
    assert not any(found["lost"].values()), found["lost"]
    overhead = found["overhead"]
    # The interrupt may come when the next rest is over.
    assert overhead["phases"] in (2, 3), overhead
    assert 0 < overhead["attached_ns"] < overhead["whole_ns"], overhead
    # The rows are those of two phases, with the rest between them; their names are the same.
    ((gap,),) = ledger.query(
        folder / "ledger",
        "SELECT max(gap) FROM (SELECT start_ns - lag(start_ns) OVER (ORDER BY start_ns) AS gap"
        " FROM spans)",
    )
    assert gap > 0.5e9
    assert ledger.count_by_span(folder / "ledger").keys() <= {"get", "set"}
    explain = [installed.tailscope(), "explain", folder / "ledger"]
    told = subprocess.run(explain, capture_output=True, text=True, timeout=120, check=True).stdout
    assert "to cost the program at most 10 %" in " ".join(told.split()), told


def test_the_end_of_the_server_ends_a_rest(
    with_overhead: Callable[..., Recorder], served: Started, folder: Path
) -> None:
    recorder = with_overhead("0.5%", "-p", served.pid).ready()
    links = lambda: {kind for kind, _ in bpf.held_by(recorder.pid)}  # noqa: E731
    until(lambda: "link" in links() or not recorder.runs, "it attaches")
    until(lambda: "link" not in links() or not recorder.runs, "it detaches")
    served.stop()
    assert "every process has ended" in recorder.wait().clean().err
    assert about(folder / "ledger")["state"] == "done"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--overhead", "1%"], "nothing to record"),
        (["--overhead", "100%", "-p", "1"], "no bound"),
        (["--overhead", "1%", "-p", "1", "--stacks"], "cannot be used with"),
        (["--overhead", "1%", "--", "true"], "cannot be used with"),
        (["--overhead", "1%", "-p", "1", "--span", "sdk"], "--sample"),
    ],
)
def test_what_can_not_be_held_is_refused(
    words: list[str], why: str, record: Callable[..., Recorder]
) -> None:
    ended = record(*words).wait()
    assert ended.code == 2 and why in ended.err, ended


def test_a_recording_that_is_too_short_is_refused(
    with_overhead: Callable[..., Recorder], served: Started
) -> None:
    ended = with_overhead("5%", "-p", served.pid, "-d", "1s").wait()
    assert ended.code == 2 and "record for " in ended.err, ended
