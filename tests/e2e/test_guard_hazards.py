"""`tailscope guard hazards`: what keeps processes from answering, as it happens."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed
from rig.guard import JavaReplica, Replica
from rig.processes import AS_NOBODY, NOBODY, Started
from rig.waiting import until


def hazards(*arguments: object, under: tuple[str, ...] = ()) -> Started:
    """`guard hazards` that has begun."""
    command = [*under, installed.tailscope(), "guard", "hazards", "--json", *arguments]
    started = Started(command)
    until(lambda: '"watch"' in started.out or not started.runs, "it watches")
    return started


def lines(started: Started) -> list[tuple[str, str]]:
    """Hazard and edge of each line."""
    told = [json.loads(line) for line in started.out.splitlines()]
    return [(line["hazard"], line["edge"]) for line in told if line["kind"] == "hazard"]


def test_the_hazards_of_a_jvm_are_shown_with_their_lengths(recordable: None, folder: Path) -> None:
    jvm = JavaReplica(folder, "jvm")
    with hazards("-p", jvm.process.pid) as started:
        jvm.collect()
        jvm.freeze()
        jvm.thaw()
        until(lambda: ("stopped", "end") in lines(started), "the stop is over")
        jvm.kill()
        assert started.wait().code == 0
        told = lines(started)
        # The JVM may collect at other times too.
        assert told.count(("collection", "begin")) == told.count(("collection", "end")) > 0
        stops = [line for line in told if line[0] in ("stopped", "gone")]
        assert stops == [("stopped", "begin"), ("stopped", "end"), ("gone", "begin")]
        ends = [json.loads(line) for line in started.out.splitlines() if '"end"' in line]
        assert all(end["lasted_ns"] > 0 for end in ends)
        scopes = {end["hazard"]: end["scope"] for end in ends}
        assert scopes["collection"] == scopes["stopped"] == "process"


@pytest.mark.parametrize("under", [(), NOBODY])
def test_stops_are_seen_with_and_without_privileges(
    recordable: None, folder: Path, under: tuple[str, ...]
) -> None:
    replica = Replica(folder, "one")
    try:
        with hazards("-p", replica.process.pid, under=under) as started:
            assert ("CAP_BPF" in started.err) == bool(under)
            replica.freeze()
            until(lambda: ("stopped", "begin") in lines(started), "the stop is seen")
            replica.thaw()
            until(lambda: ("stopped", "end") in lines(started), "its end is seen")
            replica.kill()
            assert started.wait().code == 0
            assert lines(started)[-1] == ("gone", "begin")
    finally:
        replica.end()


def test_each_stop_of_busy_threads_is_one_hazard(
    recordable: None, program: Callable[..., Path]
) -> None:
    """They stop on all CPUs at once, and run again one after another."""
    stops = 50
    with Started([program("spinning.c", "-pthread")]) as busy, hazards("-p", busy.pid) as started:
        tasks = Path(f"/proc/{busy.pid}/task")
        until(lambda: len(list(tasks.iterdir())) == 8, "its threads run")
        for stop in range(1, stops + 1):
            os.kill(busy.pid, signal.SIGSTOP)
            until(lambda: states(tasks) == {"T"}, "it is stopped")
            os.kill(busy.pid, signal.SIGCONT)
            until(lambda n=stop: lines(started).count(("stopped", "end")) >= n, "it runs on")
        busy.stop(signal.SIGKILL)
        assert started.wait().code == 0
        edges = [edge for hazard, edge in lines(started) if hazard == "stopped"]
        assert edges == ["begin", "end"] * stops


def test_without_probes_hotspots_counters_show_collections(recordable: None, folder: Path) -> None:
    jvm = JavaReplica(folder, "jvm", **AS_NOBODY)
    try:
        with hazards("-p", jvm.process.pid, under=NOBODY) as started:
            assert "CAP_BPF" in started.err
            until(lambda: "polled_hsperf" in started.out, "its counters are found", 5)
            jvm.collect()
            until(lambda: ("collection", "end") in lines(started), "a collection is seen")
    finally:
        jvm.end()


def test_a_quota_that_is_used_up_is_a_hazard(recordable: None) -> None:
    lab = installed.FAULTS
    command = [lab, "quota", "--quota-us", 20000, "--", "sh", "-c", "while :; do :; done"]
    with Started(command) as program:
        child = until(lambda: children(program.pid), "it has started the loop")[0]
        with hazards("-p", child) as started:
            until(lambda: ("throttled", "end") in lines(started), "it was throttled")
            ended = started.stop(signal.SIGINT)
            assert ended.code == 0


def states(tasks: Path) -> set[str]:
    """The states of a process's threads."""
    stats = [(task / "stat").read_text() for task in tasks.iterdir()]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}


def children(pid: int) -> list[int]:
    """The children of a process's main thread."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
