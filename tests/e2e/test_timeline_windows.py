"""`tailscope timeline`: when windows are written, what each holds, and what the memory is for."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Begin
from rig.servers import kvserver, load, memcached
from rig.timeline import about, stories
from rig.waiting import until

MEASURED, OTHER = 1, 0

pytestmark = pytest.mark.skipif(
    not {MEASURED, OTHER} <= os.sched_getaffinity(0), reason="needs two CPUs"
)


def slow_windows(windows: list[Path]) -> list[Path]:
    return [window for window in windows if window.stem.startswith("slow-")]


def test_windows_for_slow_requests_are_apart_and_no_request_is_in_two(timeline: Begin) -> None:
    """Each answer in two writes waits 40 ms for the client's acknowledgement: all are slow."""
    with (
        kvserver("--bare", "--split") as server,
        load(server, "--rate", 100, "-d", "60s", "--keys", 10),
    ):
        options = ("--keep", "10s", "--memory", "32MB", "--slow", "20ms", "--per-minute", 12)
        recorder = timeline("-p", server.pid, *options)
        until(lambda: len(slow_windows(recorder.windows())) >= 3, "three windows", 60)
        recorder.stop().clean()
    windows = slow_windows(recorder.windows())
    ends = [about(window)["to_ns"] for window in windows]
    pauses = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert all(pause >= 5e9 for pause in pauses), pauses
    told = [stories(window, "-n", 100_000) for window in windows]
    for one in told:
        # What it was written for is in it.
        assert one["slow"] >= 1, one
    requests = [(s["socket"], s["begin_ns"]) for one in told for s in one["stories"]]
    assert len(requests) == len(set(requests))
    # They overlap, as a window goes further back than to the one before it.
    assert all(one["in_earlier_windows"] > 0 for one in told[1:])


def test_a_request_longer_than_a_window_is_in_its_story(timeline: Begin) -> None:
    """The window begins in the midst of it: what it was before, the recorder has followed."""
    code = (
        "import socket, time\n"
        "s = socket.create_server(('127.0.0.1', 0))\n"
        "c = socket.create_connection(s.getsockname()); a, _ = s.accept()\n"
        "c.send(b'ask'); a.recv(9); time.sleep(2.5); a.send(b'answer'); c.recv(9)\n"
        "time.sleep(2)\n"
    )
    options = ("--keep", "1s", "--memory", "8MB", "--slow", "1s")
    recorder = timeline(*options, "--", "python3", "-c", code)
    recorder.wait().clean()
    (window,) = slow_windows(recorder.windows())
    told = stories(window)
    assert told["slow"] == 1, told
    assert told["stories"][0]["latency_ns"] >= 2.5e9
    losses = told["stories"][0]["losses"]
    assert any("before the window; earlier events are missing" in x for x in losses), told


@pytest.mark.measures
def test_the_memory_that_was_granted_is_used_and_how_long_it_holds_is_said(timeline: Begin) -> None:
    with (
        memcached(MEASURED) as server,
        load(server, "--closed-loop", "-d", "60s", "--cpu", OTHER),
    ):
        recorder = timeline("-p", server.pid, "--keep", "1s", "--memory", "12MB")
        until(lambda: "the memory holds" in recorder.err, "it is said", 20)

        def full() -> dict[str, Any] | None:
            recorder.ask()
            told = about(recorder.windows()[-1])
            return told if any(p["from_ns"] > told["from_ns"] for p in told["parts"]) else None

        told = until(full, "a ring was written over", 30)
        recorder.stop().clean()
    first = recorder.err.splitlines()[0]
    assert "keeping the last 1.00 s in 11.9 MB" in first or "in 12.0 MB" in first, first
    # Again where the rate became twice as high.
    warnings = [line for line in recorder.err.splitlines() if "the memory holds" in line]
    assert all("of the requested 1.00 s; use --memory" in line for line in warnings), warnings
    # The fuller ring is in it as a whole, as far as it was not written over meanwhile.
    most = max(part["events"] for part in told["parts"])
    cpus = len(told["parts"])
    assert most * 32 >= 0.9 * 12e6 / cpus, told["parts"]


def test_what_an_idle_machine_writes_fits_and_that_is_said_once(timeline: Begin) -> None:
    with memcached(MEASURED) as server:
        recorder = timeline("-p", server.pid, "--keep", "1s", "--memory", "64MB")
        until(lambda: "the memory would hold" in recorder.err, "it is said", 20)
        recorder.stop().clean()
    assert recorder.err.count("the memory would hold") == 1
    assert "of the requested" not in recorder.err
