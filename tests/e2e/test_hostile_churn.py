"""Connections, processes and names that come and go: what an agent holds does not grow."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed
from rig.agent import LOOPBENCH, Agent
from rig.hostile import Attack, descriptors, interpreter, resident_mib
from rig.processes import Started
from rig.recorder import regions
from rig.timeline import Timeline
from rig.waiting import until

Run = Callable[..., Started]

CONNECTIONS = 1500
PROCESSES = 400
#: Programs whose spans have 250 names each, which no other program has.
NAMED = 60
SPANS = 2000
LOOPS = "tailscope_span_duration_seconds_count{span=loop}"
REFUSED = "tailscope_lost_total{place=refused}"
#: The ring of process events holds fewer starts and ends than those of so many processes.
UNHEARD = 6000
#: Were each connection or process kept, it would be far more.
MORE_DESCRIPTORS = 40
MORE_MIB = 64


def test_an_agent_holds_nothing_of_what_came_and_went(
    agent: Callable[..., Agent],
    run: Run,
    attack: Attack,
    program: Callable[..., Path],
    folder: Path,
) -> None:
    # Where everybody can run it.
    forging = Path(shutil.copy(program("forging.c"), folder))
    begin = folder / "begin"
    attackers = [
        attack("connects", folder / "sdk.sock", CONNECTIONS, begin),
        attack("comes_and_goes", PROCESSES, begin, "/bin/true"),
        attack("comes_and_goes", NAMED, begin, forging, 0),
    ]
    rules = [f'exe = "{path}"' for path in (interpreter(folder), forging)]
    started = agent(LOOPBENCH, *rules)
    until(lambda: started.figures()["tailscope_processes"] == 3, "the attackers are watched")
    before = descriptors(started.pid), resident_mib(started)
    begin.touch()
    run("loopbench", "--spans", SPANS, "--think-us", 200).wait(120).clean()
    until(lambda: all("done" in one.out for one in attackers), "all came and went", 200)
    until(lambda: started.figures()["tailscope_processes"] == 3, "their ends are heard")
    until(
        lambda: descriptors(started.pid) < before[0] + MORE_DESCRIPTORS,
        "what they held is given back",
    )
    assert resident_mib(started) < before[1] + MORE_MIB
    assert started.figures()[LOOPS] == SPANS, started.lost()
    started.stop(signal.SIGTERM).clean()


def test_programs_of_one_user_that_come_too_often_are_refused_and_no_other_users(
    agent: Callable[..., Agent],
    run: Run,
    attack: Attack,
    program: Callable[..., Path],
    folder: Path,
) -> None:
    forging = Path(shutil.copy(program("forging.c"), folder))
    begin = folder / "begin"
    attack("comes_and_goes", 0, begin, forging, 0)
    rules = [f'exe = "{path}"' for path in (interpreter(folder), forging)]
    started = agent(LOOPBENCH, *rules)
    until(lambda: started.figures()["tailscope_processes"] == 1, "the attacker is watched")
    begin.touch()
    until(lambda: REFUSED in started.lost(), "some are refused", 120)
    run("loopbench", "--spans", SPANS, "--think-us", 200).wait(120).clean()
    until(
        lambda: started.figures().get(LOOPS, 0) == SPANS,
        "all spans of the other user's program are recorded",
    )
    started.stop(signal.SIGTERM).clean()


def test_a_flight_recorder_holds_nothing_of_what_came_and_went(
    timeline: Callable[..., Timeline], attack: Attack, program: Callable[..., Path], folder: Path
) -> None:
    forging = Path(shutil.copy(program("forging.c"), folder))
    begin = folder / "begin"
    attacker = attack("comes_and_goes", NAMED, begin, forging, 0)
    recorder = timeline("-p", attacker.pid, "--span", "sdk")
    before = resident_mib(recorder)
    begin.touch()
    until(lambda: "done" in attacker.out, "all came and went", 120)
    # Each had a map of meters of 1.5 MiB.
    assert int(recorder.status("VmHWM").split()[0]) / 1024 < before + MORE_MIB
    recorder.stop(signal.SIGTERM).clean()


def with_number(pid: int, run: Run, *command: object) -> Started:
    """Starts a program as the process with this number, which nobody has just now."""
    for _ in range(200):
        # The kernel counts on from here (kernel/pid.c); others may take the number first.
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        started = run(*command)
        if started.pid == pid:
            return started
        started.stop(signal.SIGKILL)
    raise AssertionError(f"others took the number {pid} each time")


@pytest.mark.measures
def test_a_process_with_the_number_of_one_whose_end_was_not_heard_is_not_recorded(
    agent: Callable[..., Agent], run: Run, attack: Attack, folder: Path
) -> None:
    watched = Path(shutil.copy(installed.LAB / "loopbench", folder / "watched"))
    begin = folder / "begin"
    rules = [f'exe = "{path}"' for path in (interpreter(folder), watched)]
    started = agent(*rules)
    victim = run(watched, "--seconds", 600)
    until(lambda: regions(victim), "it is recorded")
    victim.works(50e6)
    churning = attack("comes_and_goes", UNHEARD, begin, "/bin/true")
    until(lambda: started.figures()["tailscope_processes"] == 2, "the attacker is watched")

    os.kill(started.pid, signal.SIGSTOP)
    begin.touch()
    until(lambda: "done" in churning.out, "all came and went", 200)
    spans = victim.stop().clean().json()["spans"]
    other = with_number(victim.pid, run, installed.LAB / "loopbench", "--seconds", 600)
    other.works(50e6)
    os.kill(started.pid, signal.SIGCONT)

    until(lambda: started.figures()["tailscope_processes"] == 1, "it is forgotten")
    assert any("events" in place for place in started.lost()), started.lost()
    before = started.figures().get(LOOPS, 0)
    other.works(200e6)
    assert not regions(other)
    assert started.figures().get(LOOPS, 0) == before
    assert before <= spans
    started.stop(signal.SIGTERM).clean()
