"""`tailscope locality predict`: what a move gains, from samples of a program that runs.

The programs are `tailscope chase`, which says itself how fast it is, and lab/c/sharebench.c.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
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
#: The caller of the walk in every second phase of chase.
PHASE = "tailscope_locality::chase::session::odd_phase"
#: Other programs may use the CPUs: these tests need figures.
BUSY = ("--tolerance", "100%", "-d", "50ms", "--sessions", "8")
#: Lines of each thread of sharebench.
LINES = 4000


def tailscope(folder: Path, *arguments: object) -> str:
    with Started([installed.tailscope(), *arguments], cwd=folder) as started:
        # A prediction waits until the host has put its CPUs where they were.
        return started.wait(240).clean().out


def sampled(folder: Path, pid: int, phase: str, *options: object) -> dict[str, Any]:
    """What `locality` finds, which is also in found.json."""
    out = tailscope(folder, "locality", "-p", pid, "--phase", phase, "--json", "-q", *options)
    (folder / "found.json").write_text(out)
    found: dict[str, Any] = json.loads(out)
    return found


@contextmanager
def walks(folder: Path, *options: object) -> Iterator[Started]:
    """Chase in `sync` on a path."""
    command = [installed.tailscope(), "chase", "--modes", "sync", "--segment", "5s", "-d", "600s"]
    command += ["--no-latencies", "-q", "--tolerance", "100%", *options]
    with Started(command, cwd=folder) as started:
        # By then it walks: it measures the CPUs before.
        started.works(4e9)
        yield started
        started.stop()


def test_a_round_has_the_lines_and_writes_of_the_program(folder: Path) -> None:
    # Rounds long enough that the stops at each entry leave something of the time.
    options = ("--lines", LINES, "--updates", 500)
    with Started([installed.LAB / "sharebench", *options]) as program:
        until(lambda: "padded" in program.out, "it says what it does")
        program.works(1e8)
        found = sampled(folder, program.pid, "walk_private", "-d", "4s", "--rate", "2000")
    visits = found["visits"]
    assert visits["counted"] >= 10 and 0 < visits["apart_ns"] < 1e9
    demand = found["demands"]["found"]
    assert 0 < demand["in_phase"] < 1 and 1.5 < demand["threads"] <= 2
    # Threads have their own lines there.
    private = [lines for lines in demand["groups"] if lines["session"] == "local"]
    phase = [lines for lines in private if lines["uses"][0] and not lines["uses"][1]]
    assert sum(lines["lines"] for lines in phase) == pytest.approx(2 * LINES, rel=0.2)


@pytest.mark.more
def test_what_was_sampled_is_replayed_in_three_modes(folder: Path) -> None:
    with walks(folder, "-w", "0.25L2", "-u", "10%") as program:
        found = sampled(folder, program.pid, PHASE, "-d", "4s", "--rate", "1000")
    assert all(ns > 0 for ns in found["distance"]["line_ns"])
    del found["demands"]["variants"][2:]  # each is a process of its own
    (folder / "found.json").write_text(json.dumps(found))
    out = json.loads(tailscope(folder, "locality", "predict", "found.json", "--json", "-q", *BUSY))
    assert out["kind"] == "locality-predict" and out["phase"] == PHASE
    assert [gain["mode"] for gain in out["gains"]] == ["yield", "delegate"]
    for gain in out["gains"]:
        ratio = gain["ratio"]
        assert 0 < ratio["low"] <= ratio["value"] <= ratio["high"]
    assert sum(out["visit_ns"]) <= found["visits"]["apart_ns"] * 1.001
    assert out["line_ns"]["sampled"] == found["distance"]["line_ns"]


@pytest.mark.more
@pytest.mark.measures
def test_lines_that_all_write_are_worth_a_move_and_others_are_not(folder: Path) -> None:
    """Chase measures about +700 % and +5 % on these paths."""
    for size, updates, is_better in (("0.5L1d", "100%", True), ("0.25L2", "0", False)):
        with walks(folder, "-w", size, "-u", updates) as program:
            sampled(folder, program.pid, PHASE, "-d", "5s", "--rate", "2000")
        predicted = ("locality", "predict", "found.json", "--json", "-q", "-d", "500ms")
        gains = json.loads(tailscope(folder, *predicted))["gains"]
        (delegate,) = [gain["ratio"] for gain in gains if gain["mode"] == "delegate"]
        assert (delegate["value"] > 1.3) == is_better, (size, updates, gains)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (None, 2, "can't read found.json"),
        ("{", 2, "found.json is no report of `tailscope locality --json`"),
        ('{"kind": "locality"}', 2, "no report of `tailscope locality"),
        ('{"kind": "chase", "counts": COUNTS}', 2, "is a report of `chase`"),
        ('{"kind": "locality", "counts": COUNTS}', 2, "has no phase"),
        ('{"kind": "locality", "phase": "f", "counts": COUNTS}', 1, "too few accesses are known"),
        (
            '{"kind": "locality", "phase": "f", "counts": COUNTS, "demands": DEMANDS}',
            1,
            "how often `f` is entered is not known; 0 entries were counted",
        ),
        (
            '{"kind": "locality", "phase": "f", "counts": COUNTS, "demands": ALONE}',
            1,
            "one thread does nearly all of the work",
        ),
        (
            '{"kind": "locality", "phase": "f", "counts": COUNTS, "demands": ABSURD}',
            2,
            "has numbers that can't be",
        ),
    ],
)
def test_a_file_that_says_too_little_is_refused_with_what_to_do(
    text: str | None, code: int, words: str, folder: Path
) -> None:
    counts = '{"samples": 10, "in_kernel": 1}'
    demand = '{"threads": 2, "in_phase": 0.5, "waiting": [1, 1], "groups": []}'
    demands = f'{{"accesses": 9, "variants": [{demand}, {demand}], "found": {demand}}}'
    if text is not None:
        whole = text.replace("COUNTS", counts).replace("DEMANDS", demands)
        for word, threads in (("ABSURD", -2), ("ALONE", 1)):
            other = demands.replace('"threads": 2', f'"threads": {threads}')
            whole = whole.replace(word, other)
        (folder / "found.json").write_text(whole)
    command = [installed.tailscope(), "locality", "predict", "found.json", "-q"]
    with Started(command, cwd=folder) as started:
        ended = started.wait()
    assert ended.code == code and words in " ".join(ended.err.split())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_process_that_measures_ends_with_the_command(how: int, folder: Path) -> None:
    demand = {"threads": 2, "in_phase": 0.5, "waiting": [1, 1], "groups": []}
    report = {
        "kind": "locality",
        "phase": "f",
        "counts": {"samples": 1000, "in_kernel": 0},
        "visits": {"counted": 100, "apart_ns": 1e5},
        "demands": {"accesses": 900, "variants": [demand, demand], "found": demand},
    }
    (folder / "found.json").write_text(json.dumps(report))
    command = [installed.tailscope(), "locality", "predict", "found.json", "-q", "-d", "60s"]
    with Started(command, cwd=folder) as started:
        children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
        (measures,) = until(lambda: children.read_text().split(), "it starts a process")
        until(lambda: works(measures), "the process works")
        ended = started.stop(how)
        until(lambda: not works(measures), "the process has ended")
    if how == signal.SIGTERM:
        assert ended.code == 3 and "interrupted" in ended.err


def works(pid: str) -> bool:
    """Whether a process has done something, and is there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return fields[0] not in "ZX" and int(fields[11]) > 0
