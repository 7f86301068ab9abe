"""`--overhead`: attached for a part of the time, and measured against the rest."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from conftest import Begin
from proof.ports import answers, free_port
from rig import bpf, installed, ledger
from rig.agent import Agent, configuration
from rig.cost import calibrate_briefly
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.timeline import about as about_window
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


def attaches_and_detaches(observer: Started) -> None:
    """Waits until it has the next phase behind it."""

    def attached() -> bool:
        assert observer.runs, observer.wait()
        return any(kind == "link" for kind, _ in bpf.held_by(observer.pid))

    until(attached, "it attaches")
    until(lambda: not attached(), "it detaches")


# Its client asks without a pause, so a recorder that has no CPU loses entries.
@pytest.mark.measures
def test_the_recorder_is_attached_for_a_part_of_the_time(
    with_overhead: Callable[..., Recorder], served: Started, folder: Path
) -> None:
    recorder = with_overhead("10%", "-p", served.pid).ready()
    for _ in range(2):
        attaches_and_detaches(recorder)
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
    attaches_and_detaches(recorder)
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


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--span", "syscall:ready..send", "--traceparent"], "--traceparent needs requests"),
        (["--span", "uprobe:libc.so.6:nothing_at_all"], "no function 'nothing_at_all'"),
        ([], "already holds a ledger"),
    ],
)
def test_what_is_refused_is_refused_before_the_machine_is_calibrated(
    words: list[str],
    why: str,
    record: Callable[..., Recorder],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not words:
        (folder / "ledger").mkdir()
        (folder / "ledger" / "ledger.json").touch()
    monkeypatch.setenv("TAILSCOPE_COST", str(folder / "cost.json"))
    ended = record("--overhead", "1%", "-p", os.getpid(), *words).wait()
    assert ended.code == 2 and why in ended.err, ended
    assert not (folder / "cost.json").exists()


def test_a_recording_that_is_too_short_is_refused(
    with_overhead: Callable[..., Recorder], served: Started
) -> None:
    ended = with_overhead("5%", "-p", served.pid, "-d", "1s").wait()
    assert ended.code == 2 and "record for " in ended.err, ended


def test_no_window_holds_what_lies_on_both_sides_of_a_rest(
    timeline: Begin, served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    recorder = timeline("-p", served.pid, "--memory", "64MB", "--overhead", "10%")
    windows = []
    for _ in range(2):
        attaches_and_detaches(recorder)
        # It rests: the window is that of the phase before.
        recorder.ask()
        windows.append(about_window(recorder.windows()[-1]))
    said = recorder.stop().clean().err
    assert "of 10.0 % that were allowed" in said, said
    first, second = windows
    # The second phase began after a rest of a second at least, and each window ends with its phase.
    assert second["from_ns"] > first["to_ns"] + 0.5e9, (first["from_ns"], first["to_ns"], second)
    for window in windows:
        assert window["from_ns"] < window["to_ns"], window
        assert sum(part["events"] for part in window["parts"]) > 1000, window["parts"]
        assert window["watched"] == [served.pid], window["watched"]


def test_a_timeline_that_rests_ends_with_its_server(
    timeline: Begin, served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    recorder = timeline("-p", served.pid, "--memory", "64MB", "--overhead", "0.5%")
    attaches_and_detaches(recorder)
    served.stop()
    assert "every process has ended" in recorder.wait().clean().err


def test_a_server_that_ends_while_the_timeline_attaches_is_missed_by_nobody(
    timeline: Begin, served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    recorder = timeline("-p", served.pid, "--memory", "64MB", "--overhead", "10%")
    attaches_and_detaches(recorder)
    until(lambda: any(kind == "link" for kind, _ in bpf.held_by(recorder.pid)), "it attaches")
    served.stop(signal.SIGKILL)
    assert "every process has ended" in recorder.wait().clean().err


@pytest.mark.measures
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sampler decodes x86-64 only")
def test_accesses_are_sampled_for_a_part_of_the_time(
    served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    # Its samples alone cost more than the budget.
    words = ["-p", served.pid, "-d", "12s", "--rate", "5000", "--overhead", "3%", "--json"]
    with Started([installed.tailscope(), "locality", *words]) as sampler:
        ended = sampler.wait().clean()
    found = json.loads(ended.out)
    assert "of 3.00 % that were allowed" in ended.err, ended.err
    # It sampled for a part of the time, and the thread is one from phase to phase.
    assert 0 < found["seconds"] < 9, found["seconds"]
    assert found["counts"]["samples"] > 100, found["counts"]
    assert len(found["threads"]) == 1, found["threads"]


@pytest.mark.parametrize("command", ["timeline", "locality"])
def test_what_an_observer_costs_is_predicted(
    command: str, served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    words = ["cost", "predict", "-p", served.pid, "--with", command, "--json"]
    with Started([installed.tailscope(), *words]) as predict:
        prediction = json.loads(predict.wait().clean().out)["prediction"]
    slowdown = prediction["slowdown"]
    assert 0 < slowdown["low"] < slowdown["value"] < slowdown["high"] < 5, prediction
    assert all(part["unknown"] is None for part in prediction["parts"]), prediction["parts"]


@pytest.fixture
def budgeted(
    agent: Callable[..., Agent], served: Started, calibrated: Path, monkeypatch: pytest.MonkeyPatch
) -> Agent:
    """An agent that records the server within a budget."""
    monkeypatch.setenv("TAILSCOPE_COST", str(calibrated))
    record = 'spans = ["request"]\noverhead = "10%"'
    started = agent(f"pid = {served.pid}", record=record, ledger='rotate_age = "5s"')
    until(lambda: "holding an overhead of 10 %" in started.err or not started.runs, "it predicts")
    return started


# As above.
@pytest.mark.more
@pytest.mark.measures
def test_an_agent_is_attached_for_a_part_of_the_time(budgeted: Agent, served: Started) -> None:
    for _ in range(3):
        attaches_and_detaches(budgeted)
    figures = budgeted.figures()
    assert figures["tailscope_overhead_budget_ratio"] == 0.1, figures
    assert 0 < figures["tailscope_attached_ratio"] < 0.95, figures
    assert figures["tailscope_overhead_ratio{basis=predicted}{bound=value}"] > 0, figures
    assert budgeted.lost() == {}
    # It was stopped in a rest, or in the phase after it.
    budgeted.stop().clean()
    ledgers = budgeted.ledgers()
    told = [about(one) for one in ledgers]
    assert len(ledgers) >= 2, "none was rotated"
    assert [one["state"] for one in told] == ["done"] * len(told), told
    assert sum(one["rows"] for one in told) == sum(one["seen"] for one in told) > 1000
    assert sum(ledger.count(one) for one in ledgers) == sum(one["rows"] for one in told)
    held = [one["overhead"] for one in told]
    assert sum(one["phases"] for one in held) >= 3, held
    assert all(0 <= one["attached_ns"] <= one["whole_ns"] for one in held), held


@pytest.mark.more
def test_an_agent_that_rests_reloads_its_configuration(budgeted: Agent, served: Started) -> None:
    attaches_and_detaches(budgeted)
    config = budgeted.folder.parent / "agent.toml"
    config.write_text(config.read_text().replace("10%", "20%"))
    budgeted.reload()
    until(lambda: "holding an overhead of 20 %" in budgeted.err, "the new budget is held")
    assert budgeted.figures()["tailscope_overhead_budget_ratio"] == 0.2
    attaches_and_detaches(budgeted)
    served.stop()
    attaches_and_detaches(budgeted)  # it sees that the server has ended
    assert budgeted.figures()["tailscope_processes"] == 0
    budgeted.stop().clean()
    # Each ledger says within which budget it was written: the reload began another.
    told = [about(one) for one in budgeted.ledgers()]
    assert {one["overhead"]["budget"] for one in told} == {0.1, 0.2}, told
    assert sum(one["rows"] for one in told) == sum(one["seen"] for one in told), told


def test_an_agent_holds_no_budget_for_sdk_spans(folder: Path) -> None:
    record = 'spans = ["sdk"]\noverhead = "1%"'
    config = configuration(folder, "pid = 1", record=record)
    command = [installed.tailscope(), "agent", "--check", config]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "overhead is not for SDK spans" in done.stderr, done
