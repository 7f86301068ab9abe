"""`tailscope cost`: this machine calibrated, a program predicted, and the prediction checked."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig.cost import cost, told
from rig.processes import Started
from rig.waiting import until

SAMPLES = ("sample.cpu-clock", "sample.cpu-clock.chain", "sample.cpu-clock.bpf")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short calibration of this machine."""
    if os.geteuid() != 0:
        pytest.skip("only root may load the programs that are timed")
    path = tmp_path_factory.mktemp("cost") / "cost.json"
    done = cost("calibrate", "--file", path, "-d", "3s", "--quiet", "--json")
    if done.returncode == 3:
        pytest.skip(f"can't calibrate here: {done.stderr.splitlines()[0]}")
    told(done)
    return path


@pytest.fixture(scope="module")
def complete(calibrated: Path) -> Path:
    """The same, with made figures for kinds that are left out: by a short or disturbed calibration,
    or as this kernel lacks them."""
    found = json.loads(calibrated.read_text())
    known = {kind["kind"] for kind in found["kinds"]}
    short = [kind for kind, why in found["absent"] if "turns" in why or "kernel" in why]
    made = {"ns": {"value": 1000.0, "low": 900.0, "high": 1100.0}, "hits": 1000, "earlier": []}
    for kind in {*short, *SAMPLES} - known:
        found["kinds"].append({**found["kinds"][0], **made, "kind": kind})
    found["absent"] = [one for one in found["absent"] if one[0] not in {*short, *SAMPLES}]
    found["notices"] = []
    path = calibrated.with_name("complete.json")
    path.write_text(json.dumps(found))
    return path


@pytest.fixture
def busy() -> Iterator[Started]:
    """A program that makes system calls all the time."""
    with Started(["dd", "if=/dev/zero", "of=/dev/null", "bs=64"]) as program:
        until(lambda: calls(program.pid) > 1000, "it works")
        yield program


def calls(pid: int) -> int:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("syscr", "syscw")))


def test_every_kind_is_measured_or_its_absence_explained(calibrated: Path) -> None:
    found = told(cost("show", "--file", calibrated, "--json"))
    kinds = {kind["kind"]: kind for kind in found["kinds"]}
    assert len(kinds) >= 8, kinds.keys()
    for kind in kinds.values():
        assert kind["ns"]["low"] <= kind["ns"]["value"] <= kind["ns"]["high"]
    assert all(why for _, why in found["absent"])
    assert not kinds.keys() & {kind for kind, _ in found["absent"]}
    # A probe with an exception costs more than a no-op would, whatever the machine.
    assert kinds["uprobe"]["ns"]["value"] > 10
    text = cost("show", "--file", calibrated).stdout
    assert "all runs" in text and "uprobe" in text


def test_a_second_run_keeps_the_first_one_s_figures(calibrated: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.json"
    shutil.copy(calibrated, again)
    found = told(cost("calibrate", "--file", again, "-d", "2s", "--quiet", "--json"))
    assert any(len(kind["earlier"]) == 1 for kind in found["kinds"])


def test_another_machine_s_figures_are_refused(calibrated: Path, tmp_path: Path) -> None:
    other = json.loads(calibrated.read_text())
    other["machine"]["kernel"] = "another kernel"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(other))
    done = cost("predict", "--file", path, "-p", os.getpid(), "--with", "strace")
    assert done.returncode == 3
    assert "another kernel" in done.stderr and "cost calibrate" in done.stderr


def test_without_a_calibration_nothing_is_predicted(tmp_path: Path) -> None:
    done = cost("predict", "--file", tmp_path / "none.json", "-p", 1, "--with", "strace")
    assert done.returncode == 3 and "cost calibrate" in done.stderr


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("gdb", "gdb"),
        ("perf record -e no-such-event", "no-such-event"),
        ("perf record -F x", "'x'"),
        ("bpftrace -e 'uprobe:/x:*  {}'", "many probes"),
        ("strace 'x", "quote"),
        ("tailscope doctor", "not predicted"),
        ("", "no command"),
    ],
)
def test_commands_that_can_not_be_read_are_refused(calibrated: Path, line: str, word: str) -> None:
    done = cost("predict", "--file", calibrated, "-p", os.getpid(), "--with", line)
    assert done.returncode == 2 and word in done.stderr, done


def test_a_process_that_is_gone_is_refused(calibrated: Path) -> None:
    done = cost("predict", "--file", calibrated, "-p", 2**22 - 1, "--with", "strace")
    assert done.returncode == 2, done


def test_samples_and_system_calls_are_predicted(complete: Path, busy: Started) -> None:
    line = "perf record -e cpu-clock -F 999"
    found = told(cost("predict", "--file", complete, "-p", busy.pid, "--with", line, "--json"))
    slowdown = found["prediction"]["slowdown"]
    assert 0 < slowdown["low"] <= slowdown["value"] <= slowdown["high"]
    assert found["prediction"]["parts"][0]["per_second"]["value"] <= 999 * 1.05
    line = "bpftrace -e 'tracepoint:syscalls:sys_enter_read { @ = count(); }'"
    found = told(cost("predict", "--file", complete, "-p", busy.pid, "--with", line, "--json"))
    read, other = (part["per_second"] for part in found["prediction"]["parts"])
    # It reads and writes in turn; each is counted at moments of its own, and its speed varies.
    assert read["value"] > 0 and other["value"] > 0
    assert read["low"] <= other["high"] and other["low"] <= read["high"], (read, other)


def test_a_hook_that_is_not_hit_is_a_bound_and_not_0(complete: Path, busy: Started) -> None:
    line = "bpftrace -e 'tracepoint:task:task_rename { @ = count(); }'"
    words = ("predict", "--file", complete, "-p", busy.pid, "--with", line)
    found = told(cost(*words, "--json"))["prediction"]
    assert found["parts"][0]["per_second"]["high"] > 0
    assert found["slowdown"]["high"] > 0
    assert cost(*words).stdout.startswith("predicted: < ")


def test_without_progress_nothing_is_verified(complete: Path, busy: Started) -> None:
    words = ("verify", "--file", complete, "-p", busy.pid, "--with", "perf record -F 99")
    done = cost(*words)
    assert done.returncode == 0 and "predicted, not verified" in done.stdout


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
def test_a_prediction_is_held_against_the_program(complete: Path, busy: Started) -> None:
    line = "perf record -e cpu-clock -F 999"
    words = ("verify", "--file", complete, "-p", busy.pid, "--with", line, "--json")
    phases = ("--pairs", 3, "--phase", "300ms")
    measured = told(cost(*words, *phases, "--progress", "io:calls"))["measured"]
    assert measured["pairs"] == 3
    assert measured["slowdown"]["low"] <= measured["slowdown"]["high"]
    still = told(cost(*words, *phases, "--progress", "cmd:echo 1"))["measured"]
    assert still["slowdown"] is None
    assert any("predicted, not verified" in notice for notice in still["notices"])


@pytest.mark.skipif(not shutil.which("perf"), reason="perf is not installed")
def test_other_profilers_are_named(complete: Path, busy: Started) -> None:
    with Started(["perf", "stat", "-e", "cs", "-p", str(busy.pid)]) as other:
        fds = Path(f"/proc/{other.pid}/fd")

        def observes() -> bool:
            links = (os.readlink(fd) for fd in fds.iterdir() if fd.is_symlink())
            return any("perf_event" in link for link in links)

        until(observes, "perf has its event")
        line = ("--with", "perf record -F 99", "--json")
        found = told(cost("predict", "--file", complete, "-p", busy.pid, *line))
        notices = found["prediction"]["notices"]
        assert any(f"perf ({other.pid})" in notice for notice in notices), notices


def test_advice_stays_within_the_budget(complete: Path, busy: Started) -> None:
    words = ("advise", "--file", complete, "-p", busy.pid, "--budget", "2%", "--json")
    ways = told(cost(*words))["ways"]
    assert ways[0]["command"].startswith("perf record"), ways
    for way in ways:
        if way["command"]:
            assert way["slowdown"]["high"] <= 0.02 * 1.001
