"""A running recorder has few capabilities, and goes on recording all that comes later."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed, ledger
from rig.agent import Agent
from rig.processes import AS_NOBODY, Started
from rig.recorder import Recorder, about
from rig.servers import load, memcached
from rig.timeline import Timeline
from rig.waiting import until

Run = Callable[..., Started]
Record = Callable[..., Recorder]

#: capabilities(7), by their numbers there.
KILL, DAC_READ_SEARCH, SYS_PTRACE = 5, 2, 19
PERFMON, BPF, CHECKPOINT_RESTORE = 38, 39, 40
RUNNING = {DAC_READ_SEARCH, SYS_PTRACE, PERFMON, BPF, CHECKPOINT_RESTORE}
SPANS = 2000


@pytest.fixture(autouse=True)
def as_root() -> None:
    if os.geteuid():
        pytest.skip("only root has capabilities to drop")


def bits(text: str) -> set[int]:
    return {bit for bit in range(64) if int(text, 16) >> bit & 1}


def held(started: Started) -> dict[str, dict[str, set[int]]]:
    """The capabilities of each thread that is there, by the set; and whether it may gain some."""
    found = {}
    for task in Path(f"/proc/{started.pid}/task").iterdir():
        try:
            text = (task / "status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # a thread that has just ended, such as one that sealed a ledger
        lines = (line.split(":\t") for line in text.splitlines())
        status = {line[0]: line[1] for line in lines if len(line) == 2}
        sets = {name: bits(status[name]) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
        assert status["NoNewPrivs"] == "1", status
        found[status["Name"] + task.name] = sets
    return found


def check_holds(started: Started, wanted: set[int]) -> None:
    """Every thread has these capabilities, and none besides."""
    sets = {"CapEff": wanted, "CapPrm": wanted, "CapInh": set(), "CapAmb": set()}
    threads = held(started)
    assert threads == dict.fromkeys(threads, sets)


@pytest.fixture
def private(folder: Path) -> Path:
    """A program that only another user may read, in a folder that only that user may enter."""
    home = folder / "home"
    home.mkdir(mode=0o700)
    program = home / "hidden"
    shutil.copy(installed.LAB / "loopbench", program)
    program.chmod(0o500)
    for path in (program, home):
        os.chown(path, AS_NOBODY["user"], AS_NOBODY["group"])
    return program


def test_an_agent_records_what_starts_after_it_dropped_its_capabilities(
    agent: Callable[..., Agent], private: Path
) -> None:
    started = agent('name = "hidden"', ledger='rotate_age = "1s"')
    check_holds(started, RUNNING)
    before = len(started.ledgers())
    with Started([private, "--seconds", 600], **AS_NOBODY) as program:
        until(lambda: started.figures()["tailscope_spans_total"] > SPANS, "its spans come")
        until(lambda: len(started.ledgers()) > before, "the next ledger was begun")
        # With other threads: those that seal and answer.
        check_holds(started, RUNNING)
        program.stop().clean()
    until(lambda: started.figures()["tailscope_processes"] == 0, "its end is heard")
    seen = started.figures()["tailscope_spans_total"]
    started.stop().clean()
    assert started.rows() == seen > SPANS


def test_a_reload_that_loads_other_programs_needs_no_more(
    agent: Callable[..., Agent], folder: Path
) -> None:
    with memcached(0) as server:
        started = agent(f"pid = {server.pid}")
        config = folder / "agent.toml"
        sockets = config.read_text().replace('"sdk"', '"sdk", "syscall:ready..send"')
        config.write_text(sockets)
        started.reload()
        assert "new kernel programs" in started.err, started.err
        check_holds(started, RUNNING)
        with load(server, "--rate", 500, "-d", "2s", "--warmup", "0s") as asking:
            asking.wait().clean()
        until(lambda: started.figures()["tailscope_rows_total"] > 500, "requests are recorded")
        started.stop().clean()


def test_a_recorder_keeps_the_right_to_end_its_command(record: Record, private: Path) -> None:
    """Which is another user's by then, and stays when it is asked to end."""
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    recorder = record("--span", "sdk", "--", *command, private, "--seconds", 600).ready()
    check_holds(recorder, RUNNING | {KILL})
    children = Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children")
    until(lambda: children.read_text().strip(), "the command is there")
    child = Path(f"/proc/{children.read_text().split()[0]}")
    until(lambda: "hidden" in (child / "comm").read_text(), "it runs")
    until(lambda: "memfd:tailscope" in (child / "maps").read_text(), "it is recorded")
    until(lambda: any(recorder.ledger.rglob("*.parquet*")), "its rows come")
    recorder.stop(signal.SIGTERM).clean()
    assert not child.exists()
    assert about(recorder.ledger)["rows"] > 0


def test_a_command_has_the_capabilities_of_who_started_the_recorder(
    record: Record, folder: Path
) -> None:
    said = folder / "status"
    shell = ["sh", "-c", f"cat /proc/self/status > {said}"]
    record("--span", "sdk", "--", *shell).wait().clean()
    lines = dict(line.split(":\t", 1) for line in said.read_text().splitlines() if ":\t" in line)
    ours = Path("/proc/self/status").read_text()
    ours = dict(line.split(":\t", 1) for line in ours.splitlines() if ":\t" in line)
    assert lines["CapEff"] == ours["CapEff"]
    assert lines["NoNewPrivs"] == ours["NoNewPrivs"]


@pytest.mark.parametrize("span", ["sdk", "uprobe:hidden:work", "syscall:recv..send"])
def test_every_source_of_spans_is_recorded_without_them(
    record: Record, run: Run, private: Path, span: str
) -> None:
    if span.startswith("syscall"):
        with memcached(0) as server:
            recorder = record("-p", server.pid, "--span", span).ready()
            check_holds(recorder, RUNNING)
            with load(server, "--rate", 500, "-d", "2s", "--warmup", "0s") as asking:
                asking.wait().clean()
            recorder.interrupt().clean()
            assert ledger.count(recorder.ledger) > 500
        return
    with Started([private, "--seconds", 600], **AS_NOBODY) as program:
        recorder = record("-p", program.pid, "--span", span).ready()
        check_holds(recorder, RUNNING)
        program.works(300e6)
        recorder.interrupt().clean()
    assert ledger.count(recorder.ledger) > 0


def test_a_timeline_is_kept_without_them(timeline: Callable[..., Timeline], private: Path) -> None:
    with Started([private, "--seconds", 600], **AS_NOBODY) as program:
        flight = timeline("-p", program.pid, "--span", "sdk")
        check_holds(flight, RUNNING)
        program.works(300e6)
        ended = flight.stop(signal.SIGINT).clean()
    assert list(flight.folder.glob("*.timeline")), ended


def test_an_observer_drops_all_that_it_does_not_need(paced: Callable[..., Started]) -> None:
    counts = paced()
    signal_of = f"channel:{counts.pid}:rounds"
    command = [installed.tailscope(), "observe", "--signal", signal_of, "--duration", "600s"]
    with Started(command) as observer:
        until(lambda: "observing from" in observer.err or not observer.runs, "it observes")
        assert observer.runs, observer.wait()
        until(lambda: len(held(observer)) > 1, "its thread is there")
        check_holds(observer, RUNNING)
        ended = observer.stop(signal.SIGINT)
    # On a busy machine it may not have had a sample by then.
    assert ended.code == 0 or "no pair of samples was reliable" in ended.err, ended
