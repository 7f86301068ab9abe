"""`tailscope cost` of Tailscope's own recorder: predicted, and held against a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import installed
from rig.cost import calibrate_briefly, cost, told
from rig.processes import Started
from rig.waiting import until

#: What the recorder's programs add, and what it takes to time that.
OWN = ("record.hook", "record.switch", "record.request", "record.fault", "record.probe")


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short calibration of this machine."""
    path = tmp_path_factory.mktemp("cost") / "cost.json"
    absent = calibrate_briefly(path)
    assert not absent.intersection(OWN), absent
    return path


@pytest.fixture
def busy() -> Iterator[Started]:
    """A program that makes system calls all the time."""
    with Started(["dd", "if=/dev/zero", "of=/dev/null", "bs=64"]) as program:
        until(lambda: "syscr: 0\n" not in Path(f"/proc/{program.pid}/io").read_text(), "it works")
        yield program


def predicted(calibrated: Path, pid: int, line: str) -> dict:
    words = ("predict", "--file", calibrated, "-p", pid, "--with", line, "--json")
    return told(cost(*words))["prediction"]


@pytest.mark.parametrize(
    ("line", "hook"),
    [
        ("record --span syscall:recv..send", "sock_send_length"),
        ("tailscope record --span syscall:ready..send", "sk_data_ready"),
        ("record --span request", "sock_recv_length"),
        ("record --span syscall:recv..send --sample 1%", "requests that are metered"),
        ("record --span syscall:recv..send --stacks", "samples of stacks"),
        ("record --span uprobe:libc.so.6:write", "return of uprobe:libc.so.6:write"),
    ],
)
def test_the_recorder_s_own_hooks_are_predicted(
    calibrated: Path, busy: Started, line: str, hook: str
) -> None:
    found = predicted(calibrated, busy.pid, line)
    parts = {part["hook"]: part for part in found["parts"]}
    socket_hooks = {"sock_send_length", "sk_data_ready", "sock_recv_length"}
    if hook in socket_hooks and "inet_recvmsg" in parts:
        pytest.skip("before Linux 6.4 sockets are hooked at functions, whose calls nothing counts")
    assert {"sched_switch", "softirq_exit", hook} <= parts.keys(), parts.keys()
    if hook in ("samples of stacks", "return of uprobe:libc.so.6:write"):
        assert parts[hook]["per_second"]["value"] > 50, parts[hook]
    slowdown = found["slowdown"]
    assert 0 <= slowdown["low"] <= slowdown["value"] <= slowdown["high"]
    assert slowdown["high"] > 0


def test_spans_of_the_sdk_are_counted(calibrated: Path) -> None:
    with Started([str(installed.LAB / "loopbench"), "--iterations", "20000"]) as program:
        until(lambda: "loopbench" in Path(f"/proc/{program.pid}/maps").read_text(), "it runs")
        found = predicted(calibrated, program.pid, "record --span sdk")
    spans = next(part for part in found["parts"] if part["hook"] == "SDK spans")
    # A loop of 20,000 iterations takes some 5 to 50 µs.
    assert 5_000 < spans["per_second"]["value"] < 500_000, spans


def test_a_prediction_of_the_recorder_is_held_against_the_program(
    calibrated: Path, busy: Started
) -> None:
    words = ("verify", "--file", calibrated, "-p", busy.pid, "--json")
    line = ("--with", "record --span syscall:recv..send", "--progress", "io:calls")
    found = told(cost(*words, *line, "--pairs", 3, "--phase", "300ms"))
    assert found["measured"]["pairs"] == 3
    assert found["prediction"]["slowdown"]["high"] > 0
    # Nothing of the recordings is left.
    assert not list(Path("/var/lib/tailscope").glob("verify-*"))


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("record -- ls", "not running yet"),
        ("record --no-such-option", "--no-such-option"),
        ("record --span jvm:x", "jvm:x"),
        ("record --span uprobe:libc.so.6:no_such_function", "no_such_function"),
        ("timeline story window", "can't predict this"),
        ("locality predict found.json", "can't predict this"),
        ("observe --self-test", "hooks nothing"),
    ],
)
def test_what_can_not_be_predicted_is_refused(
    calibrated: Path, busy: Started, line: str, word: str
) -> None:
    done = cost("predict", "--file", calibrated, "-p", busy.pid, "--with", line)
    assert word in done.stderr + done.stdout, done
    assert done.returncode == 2 or "not predicted" in done.stdout, done
