"""`tailscope timeline --span sdk`: what programs tell of themselves has windows and stories."""

from __future__ import annotations

import bisect
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Begin
from rig import installed, slewing
from rig.java import java
from rig.servers import kvserver, load
from rig.timeline import about, drawn, stories
from rig.waiting import until

#: Spans, of which one in so many sleeps for so long, in us.
SPANS, EVERY, NAP_US = 600, 30, 20_000
NAPS = ("--spans", SPANS, "--every", EVERY, "--nap-us", NAP_US, "--threads", 2)


def test_every_span_is_there_and_slow_ones_are_told_by_what_they_did(timeline: Begin) -> None:
    options = ("--span", "sdk", "--keep", "30s", "--memory", "64MB", "--perfetto")
    recorder = timeline(*options, "--", installed.LAB / "sleepbench", *NAPS)
    made = recorder.wait(60).clean().json()
    [window] = recorder.windows()
    told = stories(window, "--slower", f"{NAP_US}us", "-n", 1000)
    assert told["requests"] == made["spans"] == 2 * SPANS
    # A busy machine may make other spans as slow.
    assert told["slow"] >= made["planted"]["spans"] > 0, made
    assert not told["losses"]
    assert {story["span"] for story in told["stories"]} == {"nap"}
    naps = [
        sum(c["ns"] for c in story["causes"] if c["name"].startswith("blocked in clock_nanosleep"))
        for story in told["stories"]
    ]
    assert sum(ns > 0.99e3 * NAP_US for ns in naps) == made["planted"]["spans"], naps
    # The picture has them on their threads.
    events = [packet.track_event for packet in drawn(window) if packet.HasField("track_event")]
    assert any(event.name == "nap" for event in events)


def test_a_slow_span_has_its_window_written_while_it_goes_on(timeline: Begin) -> None:
    options = ("--span", "sdk", "--slow", f"{NAP_US}us", "--keep", "5s", "--memory", "64MB")
    recorder = timeline(*options, "--", installed.LAB / "sleepbench", *NAPS, "--think-us", 1000)
    ended = recorder.wait(60).clean()
    window = recorder.windows()[0]
    assert window.stem == "slow-0001"
    assert f"{2 * SPANS:,} requests" in ended.err
    told = stories(window)
    assert told["slow"] >= 1
    assert told["slower_ns"] == NAP_US * 1000


def of_threads(told: dict[str, Any]) -> dict[int, list[tuple[int, int, int]]]:
    """When each thread received, sent, and was done with requests on sockets, in ns."""
    by_thread: dict[int, list[tuple[int, int, int]]] = {}
    for story in told["stories"]:
        if story["span"] is None:
            begin = story["begin_ns"]
            times = (begin + story["received_ns"], begin + story["sent_ns"])
            by_thread.setdefault(story["tid"], []).append((*times, begin + story["latency_ns"]))
    for times in by_thread.values():
        times.sort()
    return by_thread


def test_spans_of_a_server_that_runs_lie_where_the_kernel_saw_its_requests(
    timeline: Begin,
) -> None:
    """The program's cycles and the kernel's clock name the same moments."""
    with kvserver() as server, load(server, "--rate", 200, "-d", "60s", "--keys", 10):
        sources = ("--span", "sdk", "--span", "syscall:ready..send")
        recorder = timeline("-p", server.pid, *sources, "--keep", "2s", "--memory", "64MB")

        def some() -> dict[str, Any] | None:
            recorder.ask()
            told = stories(recorder.windows()[-1], "--slower", "1us", "-n", 100_000)
            spans = sum(story["span"] is not None for story in told["stories"])
            return told if spans >= 200 else None

        told = until(some, "200 spans were told of", 60)
        recorder.stop().clean()
    served = of_threads(told)
    spans = [story for story in told["stories"] if story["span"] is not None]
    assert {story["span"] for story in spans} <= {"get", "set"}
    off = []
    for story in spans:
        begin, end = story["begin_ns"], story["begin_ns"] + story["latency_ns"]
        times = served.get(story["tid"], [])
        # Its request is the last that was received before it ended: between receive and send.
        at = bisect.bisect(times, (end,)) - 1
        if at >= 0:
            received, sent, _ = times[at]
            off.append(max(received - begin, sent - end, 0))
    # At either end of the window a request may be missing whose span is there.
    assert len(off) >= 0.95 * len(spans), (len(off), len(spans))
    right = sum(ns <= 20_000 for ns in off)
    assert right >= 0.98 * len(off), sorted(off)[-20:]


def test_programs_that_come_and_go_have_memory_of_their_own(
    timeline: Begin, nothing_left: None
) -> None:
    bench = f"{installed.LAB / 'sleepbench'} --spans 50 --every 1000000 --think-us 20000"
    script = f"{bench} & {bench} & wait; exec {bench}"
    options = ("--span", "sdk", "--keep", "30s", "--memory", "16MB")
    recorder = timeline(*options, "--", "sh", "-c", script)
    recorder.wait(60).clean()
    told = stories(recorder.windows()[0], "--slower", "1us", "-n", 1000)
    # The program is found when the first of them runs it: of its first spans some are missing.
    assert 120 <= told["requests"] <= 150, told["requests"]
    assert len({story["tid"] for story in told["stories"]}) == 3


def test_spans_of_a_java_program_are_all_there_and_nest_as_it_made_them(timeline: Begin) -> None:
    options = ("--span", "sdk", "--keep", "60s", "--memory", "64MB")
    recorder = timeline(*options, "--", *java("Nesting", 500))
    pairs = recorder.wait(60).clean().json()["pairs"]
    [window] = recorder.windows()
    told = stories(window, "--slower", "0.001us", "-n", 10_000)
    assert not told["losses"]
    names = Counter(story["span"] for story in told["stories"])
    assert names == {"outer": pairs, "scoped": pairs, "inner": pairs}
    by_thread: dict[int, dict[str, list[tuple[int, int]]]] = {}
    for story in told["stories"]:
        span = (story["begin_ns"], story["begin_ns"] + story["latency_ns"])
        of = by_thread.setdefault(story["tid"], {name: [] for name in names})
        of[story["span"]].append(span)
    assert len(by_thread) == 3
    for of in by_thread.values():
        for name, within in (("scoped", "outer"), ("inner", "scoped")):
            for (begin, end), (first, last) in zip(
                sorted(of[name]), sorted(of[within]), strict=True
            ):
                assert first <= begin <= end <= last, (name, within)


def test_spans_lie_where_they_were_while_the_kernels_clock_is_slewed(
    timeline: Begin, program: Callable[..., Path]
) -> None:
    """As much as NTP does at most, to and fro; the program reads that clock itself."""
    seconds, turns = 6, 8
    try:
        with slewing.set_right_again():
            options = ("--span", "sdk", "--keep", "60s", "--memory", "64MB")
            recorder = timeline(*options, "--", program("moments.c"), seconds)
            for turn in range(turns):
                slewing.slew(500 if turn % 2 else -500)
                time.sleep(seconds / turns)
            ended = recorder.wait(60).clean()
    except PermissionError as error:
        pytest.skip(f"the clock may not be slewed here: {error}")
    made = ended.json()
    [window] = recorder.windows()
    told = sorted(
        (story["begin_ns"], story["begin_ns"] + story["latency_ns"])
        for story in stories(window, "--slower", "1us", "-n", 100_000)["stories"]
    )
    assert len(told) == len(made) > 1000
    off = [
        max(before - begin, begin - after, first - end, end - last, 0)
        for (begin, end), (before, after, first, last) in zip(told, made, strict=True)
    ]
    # A rate of the second before would be wrong by up to 1,000 us.
    right = sum(ns <= 20_000 for ns in off)
    assert right >= 0.98 * len(off), sorted(off)[-len(off) // 40 :]
    # And the window says that the clocks were found apart: by up to 50 us, at 20 looks a second.
    assert about(window)["sdk_clock_off_ns"] > 5_000
