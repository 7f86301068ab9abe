"""`tailscope locality` on a program whose sharing is known (lab/c/sharebench.c)."""

from __future__ import annotations

import ctypes
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from rig import installed
from rig.observer import NEEDS_TWO_CPUS
from rig.processes import Started
from rig.waiting import until

pytestmark = [
    NEEDS_TWO_CPUS,
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the sampler decodes x86-64 only"),
]
#: What the program is asked for.
LINES, TABLE = 256, 64
#: Variables of the program, by their names in its file.
COUNTER, FALSE = "shared_counter", "falsely_shared"
#: Structures of tests/c/neighbours.c, and the members of its two threads.
NEIGHBOURS = {
    "orders": ("placed", "shipped"),
    "queue": ("head", "tail"),
    "stats": ("hits", "misses"),
    "account": ("credit", "debit"),
    "link": ("sent", "received"),
    "stock": ("bought", "sold"),
    "cache": ("fills", "evictions"),
    "session": ("opened", "closed"),
    "disk": ("reads", "writes"),
    "pool": ("taken", "given"),
}
#: The others are on the heap.
VARIABLES = ("orders", "queue", "stats", "account", "link")
#: Loads and stores of a line of `private_lines`: three loads, one store.
PRIVATE_UPDATES = 0.25


@contextmanager
def sharebench(*options: object) -> Iterator[Started]:
    command = [installed.LAB / "sharebench", "--lines", LINES, "--table", TABLE, *options]
    with Started(command) as started:
        until(lambda: "padded" in started.out, "it says what it does")
        started.works(1e8)
        yield started


@contextmanager
def neighbours(program: Callable[..., Path], *options: object) -> Iterator[Started]:
    """tests/c/neighbours.c, at work."""
    with Started([program("neighbours.c"), *options]) as started:
        until(lambda: "ready" in started.out, "it says so")
        started.works(1e8)
        yield started


def locality(folder: Path, *arguments: object) -> dict[str, Any]:
    command = [installed.tailscope(), "locality", "-q", "--json", *arguments]
    with Started(command, cwd=folder) as started:
        return json.loads(started.wait().clean().out)


def named(lines: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["what"].split("+")[0] == name]


def covers(share: dict[str, float], truth: float, slack: float) -> bool:
    return share["low"] - slack <= truth <= share["high"] + slack


def test_planted_sharing_is_found_by_line_and_bytes(folder: Path) -> None:
    with sharebench() as started:
        found = locality(folder, "-p", started.pid, "-d", "4s", "--rate", "1000")
    (counter,) = named(found["contended"], COUNTER)
    assert counter["sharing"] == "true"
    users = {user["name"]: user for user in counter["users"]}
    assert set(users) == {"worker-0", "worker-1"}
    # The counter is only ever added to: one load and one store each.
    assert all(user["reads"] == user["writes"] > 0 for user in users.values())
    assert all(user["bytes"] == [0, 8] for user in users.values())
    (line,) = named(found["contended"], FALSE)
    assert line["sharing"] == "false"
    assert {user["name"]: user["bytes"] for user in line["users"]} == {
        "worker-0": [0, 8],
        "worker-1": [8, 16],
    }
    assert all(user["reads"] == 0 < user["writes"] for user in line["users"])
    assert line["functions"] == counter["functions"] == ["update_shared"]
    # Nothing else is written by several threads.
    assert len(found["contended"]) == 2, found["contended"]


def test_padded_words_are_not_reported_as_shared(folder: Path) -> None:
    with sharebench("--padded") as started:
        found = locality(folder, "-p", started.pid, "-d", "3s", "--rate", "1000")
    assert [line["what"] for line in found["contended"]] == [f"{COUNTER}+0x0"]
    assert all(line["sharing"] == "private" for line in named(found["hot"], FALSE))


def test_falsely_shared_members_are_named_with_their_types(
    folder: Path, program: Callable[..., Path]
) -> None:
    with neighbours(program) as started:
        found = locality(folder, "-p", started.pid, "-d", "4s")
    first = found["contended"][: len(NEIGHBOURS)]
    assert {line["sharing"] for line in first} == {"false"}, first
    seen = [
        (user["name"], field["name"], field["type"], *field["bytes"])
        for line in first
        for user in sorted(line["users"], key=lambda user: user["name"])
        for field in user["fields"]
    ]
    planted = []
    for name, (left, right) in NEIGHBOURS.items():
        of = f"the_{name}" if name in VARIABLES else f"struct {name}"
        planted += [("left", f"{of}.{left}", "long int", 0, 8)]
        planted += [("right", f"{of}.{right}", "int", 8, 12)]
    pairs = [list(zip(all_[::2], all_[1::2], strict=True)) for all_ in (seen, planted)]
    assert sorted(pairs[0]) == sorted(pairs[1])
    (folder / "found.json").write_text(json.dumps(found))
    command = [installed.tailscope(), "report", "-q", "found.json"]
    with Started(command, cwd=folder) as drawing:
        drawing.wait().clean()
    page = (folder / "found.html").read_text()
    assert "10 lines are falsely shared" in page and "struct session.closed (int)" in page


def test_padded_members_are_not_reported(folder: Path, program: Callable[..., Path]) -> None:
    with neighbours(program, "padded") as started:
        found = locality(folder, "-p", started.pid, "-d", "3s")
    assert not found["contended"], found["contended"]


def test_groups_and_update_ratios_are_those_of_the_program(folder: Path) -> None:
    with sharebench() as started:
        options = ("--phase", "walk_private", "-d", "5s", "--rate", "2000")
        found = locality(folder, "-p", started.pid, *options)
    groups = {(group["phase"], group["session"]): group for group in found["groups"]}
    private = groups["phase", "local"]
    # The phase has no other lines of its own.
    assert private["updates"]["value"] == pytest.approx(PRIVATE_UPDATES, abs=0.03)
    shared = 2 + TABLE
    everything = 2 * LINES + shared
    assert covers(private["lines"], 2 * LINES / everything, 0.02), private
    assert covers(groups["rest", "global"]["lines"], shared / everything, 0.02)
    estimate = found["lines"]
    # Stacks and the variables that hold the options are a few lines more.
    assert everything * 0.85 <= estimate["estimate"] <= everything * 1.15
    functions = {function["name"]: function for function in found["functions"]}
    assert functions["walk_private"]["updates"]["value"] == pytest.approx(0.25, abs=0.03)
    assert functions["read_table"]["writes"] == 0
    assert {thread["name"] for thread in found["threads"]} >= {"worker-0", "worker-1"}


def test_the_text_names_lines_and_says_what_was_not_seen(folder: Path) -> None:
    with sharebench() as started:
        command = [installed.tailscope(), "locality", "-q", "-p", started.pid, "-d", "2s"]
        with Started(command, cwd=folder) as sampling:
            out = " ".join(sampling.wait().clean().out.split())
    assert "of all samples were in the kernel, where no access is seen" in out
    assert f"{FALSE}+0x0" in out and "FALSE SHARING" in out
    assert f"{COUNTER}+0x0" in out and "TRUE SHARING" in out


def test_the_program_is_as_before_after_the_sampler_was_killed(folder: Path) -> None:
    with sharebench() as started:
        command = [installed.tailscope(), "locality", "-q", "-p", started.pid, "-d", "60s"]
        with Started(command, cwd=folder) as sampling:
            until(lambda: sampling.hears(signal.SIGINT), "it handles signals")
            sampling.works(5e7)
            os.kill(sampling.pid, signal.SIGKILL)
            assert sampling.wait().code == -signal.SIGKILL
        # All four debug registers of its threads are free again.
        assert watchpoints(started.pid) == 4
        started.works(1e8)
        assert started.stop().code == 0


def test_watchpoints_that_a_debugger_has_are_left_to_it(folder: Path) -> None:
    with sharebench() as started, taken_watchpoints(started.pid) as taken:
        assert taken == 4
        found = locality(folder, "-p", started.pid, "-d", "1s")
        assert "debug registers" in found["watch"]["stopped"]
        assert found["counts"]["accesses"] > 0


def test_a_function_that_is_not_there_is_named_with_those_like_it(folder: Path) -> None:
    with sharebench() as started:
        command = [installed.tailscope(), "locality", "-p", started.pid, "--phase", "walk_privat"]
        with Started(command, cwd=folder) as sampling:
            ended = sampling.wait()
    assert ended.code == 2 and "did you mean walk_private" in ended.err


def test_a_function_that_is_never_called_ends_with_1(folder: Path) -> None:
    with sharebench() as started:
        command = [installed.tailscope(), "locality", "-p", started.pid, "-d", "500ms"]
        with Started([*command, "--phase", "on_interrupt"], cwd=folder) as sampling:
            ended = sampling.wait()
    assert ended.code == 1 and "no sample was in `on_interrupt`" in ended.err


def test_a_process_that_sleeps_has_no_sample_and_ends_with_1(folder: Path) -> None:
    with Started(["sleep", "60"]) as started:
        command = [installed.tailscope(), "locality", "-p", started.pid, "-d", "300ms"]
        with Started(command, cwd=folder) as sampling:
            ended = sampling.wait()
    assert ended.code == 1 and "no CPU time" in ended.err


def test_a_process_that_ends_is_reported_with_what_was_sampled(folder: Path) -> None:
    with sharebench() as started:
        command = [installed.tailscope(), "locality", "--json", "-p", started.pid, "-d", "60s"]
        with Started(command, cwd=folder) as sampling:
            until(lambda: sampling.hears(signal.SIGINT), "it handles signals")
            sampling.works(5e7)
            started.stop()
            ended = sampling.wait().clean()
    assert "has ended" in ended.err
    assert json.loads(ended.out)["counts"]["accesses"] > 0


@contextmanager
def taken_watchpoints(pid: int) -> Iterator[int]:
    """Takes as many debug registers of a process's threads as there are, at most four each."""
    opened = [_watchpoint(int(tid)) for tid in os.listdir(f"/proc/{pid}/task") for _ in range(4)]
    taken = [fd for fd in opened if fd >= 0]
    try:
        yield len(taken) // len(os.listdir(f"/proc/{pid}/task"))
    finally:
        for fd in taken:
            os.close(fd)


def watchpoints(pid: int) -> int:
    """How many debug registers each of a process's threads has free."""
    with taken_watchpoints(pid) as free:
        return free


def _watchpoint(tid: int) -> int:
    """A watchpoint of a thread (perf_event_open(2)); negative if there is no register for it."""
    perf_event_open, breakpoint_kind, write, length, size = 298, 5, 2, 8, 112
    attributes = (ctypes.c_uint8 * size)()
    words = (ctypes.c_uint64 * (size // 8)).from_buffer(attributes)
    words[0] = breakpoint_kind | size << 32
    words[5] = 1 | 1 << 5  # disabled, without the kernel: it has its register anyway
    words[6] = write << 32
    words[7], words[8] = 0x1000, length
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.syscall(perf_event_open, ctypes.byref(attributes), tid, -1, -1, 0))
