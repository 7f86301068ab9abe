"""A watched process has files that are FIFOs, devices, sparse or broken programs."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import installed
from rig.agent import LOOPBENCH, Agent
from rig.hostile import (
    AS_AGENT,
    Attack,
    elf,
    interpreter,
    lines,
    resident_mib,
    sdk_note,
)
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.timeline import Timeline
from rig.waiting import until

Run = Callable[..., Started]
Record = Callable[..., Recorder]

#: Maps a file as code, and puts something else where the kernel says that it was.
IN_THE_WAY = """
import mmap, os, sys, time
open("code", "wb").write(bytes(8192))
code = os.open("code", os.O_RDONLY)
held = mmap.mmap(code, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
os.unlink("code")
there = "code (deleted)"
match sys.argv[1]:
    case "fifo": os.mkfifo(there)
    case "device": os.symlink("/dev/zero", there)
    case "sparse":
        open(there, "wb").close()
        os.truncate(there, 1 << 40)
print("ready", flush=True)
time.sleep(600)
"""

#: Maps a program file as code, and writes it anew again and again.
EVER_NEW = """
import mmap, os, sys, time
whole = open(sys.argv[1], "rb").read()
open("code", "wb").write(whole)
code = os.open("code", os.O_RDONLY)
held = mmap.mmap(code, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
print("ready", flush=True)
while True:
    more = mmap.mmap(-1, 1 << 20)
    os.utime("code")
    time.sleep(0.02)
    more.close()
    time.sleep(0.02)
"""

KINDS = ["fifo", "device", "sparse"]
SPANS = 2000


@pytest.mark.parametrize("under", [(), AS_AGENT], ids=["root", "agent's rights"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_recorder_is_not_held_up_by_what_lies_where_code_was(
    record: Record,
    run: Run,
    attack: Attack,
    kind: str,
    under: tuple[str, ...],
) -> None:
    attacker = attack(IN_THE_WAY, kind)
    command = [installed.LAB / "loopbench", "--spans", SPANS]
    recorder = record("-p", attacker.pid, "--span", "sdk", under=under).ready()
    assert resident_mib(recorder) < 512
    recorder.stop(signal.SIGTERM).clean()
    other = record("--span", "sdk", "--", *command, under=under, name="second")
    other.wait(60).clean()
    ledger = about(other.ledger)
    assert ledger["rows"] == SPANS


@pytest.mark.parametrize("kind", KINDS)
def test_a_flight_recorder_is_not_held_up_by_what_lies_where_code_was(
    timeline: Callable[..., Timeline],
    attack: Attack,
    kind: str,
) -> None:
    recorder = timeline("-p", attack(IN_THE_WAY, kind).pid, "--span", "sdk")
    recorder.ask()
    recorder.stop(signal.SIGTERM).clean()


def test_an_agent_records_others_while_files_are_broken_and_ever_new(
    agent: Callable[..., Agent],
    run: Run,
    attack: Attack,
    folder: Path,
) -> None:
    broken = folder / "broken"
    broken.write_bytes(elf(sdk_note(4096 + 64), b".note.stapsdt", 7))
    attackers = [attack(EVER_NEW, broken)]
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


def test_a_sparse_table_of_symbols_takes_no_memory(folder: Path, attack: Attack) -> None:
    attack("print('ready', flush=True); import time; time.sleep(600)")
    program = folder / "attacker" / "sparse"
    program.write_bytes(elf(b"", b".symtab", 2, claims=3 << 30))
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
