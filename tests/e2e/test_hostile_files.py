"""A watched process has files that are FIFOs, devices, sparse or broken programs."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from attacks.forged import broken_program, sparse_symbols
from rig import installed, ledger
from rig.agent import LOOPBENCH, Agent
from rig.hostile import (
    AS_AGENT,
    Attack,
    interpreter,
    lines,
    own_folder,
    resident_mib,
)
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.timeline import Timeline
from rig.waiting import until

Run = Callable[..., Started]
Record = Callable[..., Recorder]


KINDS = ["fifo", "device", "sparse"]
SPANS = 2000
#: To detach from each takes the kernel some 50 ms.
MANY = 100


@pytest.mark.parametrize("under", [(), AS_AGENT], ids=["root", "agent's rights"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorder_is_not_held_up_by_what_lies_where_code_was(
    record: Record,
    run: Run,
    attack: Attack,
    kind: str,
    under: tuple[str, ...],
) -> None:
    attacker = attack("in_the_way", kind)
    command = [installed.LAB / "loopbench", "--spans", SPANS]
    recorder = record("-p", attacker.pid, "--span", "sdk", under=under).ready()
    assert resident_mib(recorder) < 512
    recorder.stop(signal.SIGTERM).clean()
    other = record("--span", "sdk", "--", *command, under=under, name="second")
    other.wait(60).clean()
    assert about(other.ledger)["rows"] == SPANS


@pytest.mark.parametrize("kind", KINDS)
def test_a_flight_recorder_is_not_held_up_by_what_lies_where_code_was(
    timeline: Callable[..., Timeline],
    attack: Attack,
    kind: str,
) -> None:
    recorder = timeline("-p", attack("in_the_way", kind).pid, "--span", "sdk")
    recorder.ask()
    recorder.stop(signal.SIGTERM).clean()


def test_an_agent_records_others_while_files_are_broken_and_ever_new(
    agent: Callable[..., Agent],
    run: Run,
    attack: Attack,
    folder: Path,
) -> None:
    broken = folder / "broken"
    broken.write_bytes(broken_program())
    attackers = [attack("ever_new", broken)]
    started = agent(LOOPBENCH, f'exe = "{interpreter(folder)}"')
    until(lambda: started.figures()["tailscope_processes"] >= 1, "the attacker is watched")
    run("loopbench", "--spans", SPANS, "--think-us", 200).wait(60).clean()
    figures = until(
        lambda: (f := started.figures())["tailscope_rows_total"] >= SPANS and f, "rows come"
    )
    assert figures["tailscope_rows_total"] == SPANS
    assert not started.lost()
    assert lines(started) < 100, started.err[-2000:]
    assert attackers[0].runs
    started.stop(signal.SIGTERM).clean()


def test_many_files_with_the_sdk_hold_up_neither_others_nor_the_end(
    record: Record, run: Run, attack: Attack, program: Callable[..., Path], folder: Path
) -> None:
    # Where everybody can run it.
    forging = Path(shutil.copy(program("forging.c"), folder))
    attacker = attack("new_files", MANY, folder / "begin", forging)
    ours = ("-p", os.getpid())
    recorder = record("-p", attacker.pid, *ours, "--span", "sdk").ready()
    (folder / "begin").touch()
    until(lambda: "done" in attacker.out, "all ran", 120)
    loop = run("loopbench", "--seconds", 600)
    recorder.serves(loop)
    recorder.stop(signal.SIGTERM).clean()
    assert ledger.count(recorder.ledger, f"span = 'loop' AND pid = {loop.pid}") > 100


def test_a_sparse_table_of_symbols_takes_no_memory(recordable: None, folder: Path) -> None:
    program = own_folder(folder) / "sparse"
    program.write_bytes(sparse_symbols())
    os.truncate(program, 4 << 30)
    command = [installed.tailscope(), "record", "--span", f"uprobe:{program}:main", "-o"]
    process = subprocess.Popen(
        [*command, folder / "ledger", "--", "/bin/true"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 60)),
    )
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode not in (0, -signal.SIGXCPU), said
    assert "sparse" in said
    assert used.ru_maxrss < 256 << 10, f"{used.ru_maxrss} KiB"
