"""`tailscope observe` on Java: channels, and methods and loops that say where they are."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rig import installed
from rig.java import JAR, java, jcmd
from rig.observer import CPUS, NEEDS_TWO_CPUS
from rig.processes import Started, favoured
from rig.waiting import until

SOURCE = installed.ROOT / "tests" / "java" / "Placed.java"
FAR_BELOW, FAR_ABOVE = 0.6, 0.8

pytestmark = NEEDS_TWO_CPUS


def on_a_cpu(command: list[str]) -> list[str]:
    """Alone there, as far as possible: other work would hold up each method at random."""
    return [*favoured(), "taskset", "-c", str(CPUS[0]), *command]


def has_channels(pid: int, *names: str) -> bool:
    """Whether the observer, asked for a channel that is called nearly so, tells these names."""

    def has(name: str) -> bool:
        asked = ("--signal", f"channel:{pid}:{name[:-1]}")
        command = [str(installed.tailscope()), "observe", *asked]
        said = subprocess.run(command, capture_output=True, text=True, timeout=60).stderr
        near = re.search(r"did you mean (.*)\?", said)
        return near is not None and name in near[1].split(", ")

    return all(map(has, names))


def watch(pid: int, tag: str) -> list[str]:
    observe = [str(installed.tailscope()), "observe", "--quiet", "--json", "--period", "10000"]
    return [*observe, "--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:{tag}"]


def observed(pid: int, tag: str) -> dict[str, Any]:
    with Started([*watch(pid, tag), "--duration", "1s"]) as observer:
        return json.loads(observer.wait(60).clean().out)


def line_of(text: str) -> int:
    """Where a loop of the program begins."""
    (found,) = (n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if text in line)
    return found


def hold(told: dict[str, Any]) -> None:
    """700 rounds in one method for 300 in the other, all alike."""
    functions = {f["name"]: f for f in told["by_tag"]["functions"]}
    seven, three = functions["Placed.seven"], functions["Placed.three"]
    assert seven["share"] + three["share"] > 0.9
    assert FAR_BELOW < seven["share"] / (seven["share"] + three["share"]) < FAR_ABOVE
    # Other work on its CPU changes the shares, and not the number of rounds in each method.
    rounds = [f["share"] * f["per_second"][0] for f in (seven, three)]
    assert rounds[0] / rounds[1] == pytest.approx(7 / 3, rel=0.15)
    names = {name for value in told["by_tag"]["values"] for name in value["names"] or [] if name}
    assert f"Placed.seven:{line_of('i < 700')}" in names
    assert f"Placed.three:{line_of('do {')}" in names


def test_channels_of_a_program_in_java_are_read() -> None:
    with Started(on_a_cpu(java("Placed"))) as jvm:
        until(lambda: has_channels(jvm.pid, "rounds", "phase"), "it made its channels")
        told = observed(jvm.pid, "phase")
    assert told["rates"][0]["all_per_second"] > 0
    shares = {tuple(v["tags"]): v["share"] for v in told["by_tag"]["values"]}
    assert shares.keys() == {(7,), (3,)}
    assert FAR_BELOW < shares[(7,)] < FAR_ABOVE


def test_methods_and_loops_of_known_length_have_their_share() -> None:
    agent = f"-javaagent:{JAR}=place=Placed.*"
    with Started(on_a_cpu(java("Placed", options=(agent,)))) as jvm:
        until(lambda: has_channels(jvm.pid, "edge", "rounds"), "it says where it is")
        with Started(watch(jvm.pid, "edge")) as observer:
            until(lambda: cpu_time(observer.pid) > 50, "it has seen some of it")
            # Names are told of a program that has ended, too.
            os.kill(jvm.pid, signal.SIGKILL)
            told = json.loads(observer.wait(60).clean().out)
        assert "no places" not in jvm.err
    assert "ended" in told["end"]
    hold(told)


def cpu_time(pid: int) -> int:
    """Ticks that its threads have run."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_a_program_that_runs_already_says_where_its_threads_are() -> None:
    with Started(on_a_cpu(java("Placed", "worker"))) as jvm:
        until(lambda: has_channels(jvm.pid, "rounds"), "it runs")
        command = jcmd(jvm.pid, "JVMTI.agent_load", JAR, "Placed.*")
        until(
            lambda: (
                "return code: 0"
                in subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
            ),
            "the agent is loaded",
        )
        comms = Path(f"/proc/{jvm.pid}/task").glob("*/comm")
        (worker,) = (comm.parent.name for comm in comms if comm.read_text().strip() == "worker")
        until(lambda: has_channels(jvm.pid, f"edge.{worker}"), "its thread says where it is")
        hold(observed(jvm.pid, f"edge.{worker}"))
