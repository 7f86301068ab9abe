"""A page of a running program is moved and put back, and it can't tell: another
architecture. And where it can't be moved, nothing stays of what was prepared for it. The program,
tests/c/moving.c, says at its end what it would have lost."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from guest import ROOT, cross
from guest.session import Session

MOVES = 20
#: When removal was tried only once, something stayed after two of six, with three threads.
MOVES_IN_VAIN = 8
#: Which count at full speed.
THREADS = 3
APART = "----"


def compiled(guest: Session) -> Path:
    """The program, with its libraries in it, in the guest's shared folder."""
    target = cross.TARGETS.get(guest.kernel.architecture)
    program = guest.share / "moving"
    source = ROOT / "tests" / "c" / "moving.c"
    compiler = target.gcc if target else "cc"
    subprocess.run([compiler, "-O2", "-static", "-pthread", "-o", program, source], check=True)
    return program


def moved(guest: Session, threads: int, times: int, seconds: int) -> list[dict[str, Any]]:
    """The reports of so many observations, after which all is mapped in the program as before; it
    has ended well."""
    program = compiled(guest)
    # With one CPU the observer sleeps between samples. Two may be too few to be good: exit code 3.
    script = f"""
rm -f input said && mkfifo input
/share/{program.name} {threads} <input >said 2>&1 & program=$!
exec 3>input
until [ -s said ]; do usleep 20000; done
cat /proc/$program/maps >before
for move in $(seq {times}); do
    tailscope observe --quiet --json --no-pauses --duration 30ms --period 125000 \\
        --signal mem:$program:moving_page:moved >told.$move || [ $? = 3 ] || exit 1
    diff before /proc/$program/maps >&2 || exit 1
done
exec 3>&-
wait $program || {{ cat said >&2; exit 1; }}
for move in $(seq {times}); do cat told.$move; echo; echo {APART}; done
"""
    ended = guest.shell(script, seconds).clean()
    told = [json.loads(text) for text in ended.out.split(APART)[:-1]]
    assert len(told) == times
    return told


def test_a_program_cannot_tell_that_its_page_was_moved(guest: Session) -> None:
    if guest.kernel.architecture == "amd64":
        pytest.skip("on x86-64 it is among the tests of crates/signals")
    told = moved(guest, THREADS, MOVES, 300)
    moves = [move for report in told for move in report["moves"]]
    # Where time is counted in instructions, threads that are slow to stop are let go now and then.
    assert len(moves) > MOVES / 2, [report["rates"][0]["how"] for report in told]
    assert all(move["there_us"] > 0 and move["back_us"] > 0 for move in moves)
    print([(round(move["there_us"]), round(move["back_us"])) for move in moves])


def test_nothing_stays_of_a_page_that_could_not_be_moved_in_time(guest: Session) -> None:
    if guest.kernel.architecture != "amd64":
        pytest.skip("where time is counted in instructions it can")
    # One thread of the host has all CPUs of that machine by turns: a stop takes milliseconds.
    told = moved(guest, 1, MOVES_IN_VAIN, 120)
    print([report["rates"][0]["how"] for report in told])
