"""Two recorders serve the same programs: a recording and a timeline, in either order."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import Begin, Record
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import Recorder, about, regions
from rig.timeline import Timeline, stories
from rig.waiting import until

Run = Callable[..., Started]

#: How many spans each thread of a program made, by the thread and their name.
Spans = Counter[tuple[int, str]]


@dataclass(frozen=True)
class Program:
    """A program with the SDK: one that goes on, with pauses, and one that ends by itself."""

    goes_on: list[object]
    ends: list[object]
    #: By name, how many spans the second one makes.
    spans: dict[str, int]


def nested(command: list[object], pairs: int) -> Program:
    names = ("outer", "scoped", "inner")
    return Program([*command, 1, 600, 20], [*command, pairs], dict.fromkeys(names, 3 * pairs))


LOOPBENCH = [installed.LAB / "loopbench"]
PROGRAMS = {
    "c": Program(
        [*LOOPBENCH, "--seconds", 600, "--think-us", 20_000],
        [*LOOPBENCH, "--spans", 300, "--think-us", 100],
        {"loop": 300},
    ),
    "rust": nested([installed.ROOT / "target" / "release" / "examples" / "nested"], 100),
}


class Shell(Started):
    """A shell that runs a program each time that it is asked to."""

    def __init__(self, gate: Path, program: Program) -> None:
        os.mkfifo(gate)
        self.gate = gate
        script = 'while read go < "$0"; do "$@" && echo ended; done'
        # No span is to be missing because an answer comes late on a busy machine.
        patient = {**os.environ, "TAILSCOPE_PATIENCE_MS": "60000"}
        super().__init__(["sh", "-c", script, gate, *program.ends], env=patient)

    def run_it(self) -> None:
        """Runs the program to its end."""
        before = self.out.count("ended\n")
        self.gate.write_text("go\n")
        until(lambda: self.out.count("ended\n") > before, "the program ends")


def in_ledger(recorder: Recorder, besides: set[int]) -> Spans:
    """The spans of a recording that ends now and has lost nothing, but not of these threads."""
    recorder.interrupt().clean()
    lost = about(recorder.ledger)["lost"]
    assert not any(lost.values()), lost
    rows = ledger.query(recorder.ledger, "SELECT tid, span, count(*) FROM spans GROUP BY ALL")
    return Counter({(tid, span): count for tid, span, count in rows if tid not in besides})


def in_timeline(recorder: Timeline, besides: set[int]) -> Spans:
    """The same of a timeline."""
    recorder.ask()
    found = stories(recorder.windows()[-1], "--slower", "0.001us", "-n", 100_000)
    recorder.stop().clean()
    assert not found["losses"], found["losses"]
    spans = Counter((story["tid"], story["span"]) for story in found["stories"])
    return Counter({key: count for key, count in spans.items() if key[0] not in besides})


def by_name(spans: Spans) -> Counter[str]:
    names: Counter[str] = Counter()
    for (_, name), count in spans.items():
        names[name] += count
    return names


@pytest.fixture
def begin(record: Record, timeline: Begin) -> Callable[..., Started]:
    """Starts a recorder of either kind."""

    def start(kind: str, name: str, *watched: object) -> Started:
        if kind == "record":
            return record(*watched, "--span", "sdk", name=name).ready()
        return timeline(*watched, "--span", "sdk", "--keep", "120s", "--memory", "64MB")

    return start


def reaches(program: Started, recorders: int, besides: frozenset[str] = frozenset()) -> None:
    """Waits until a program has the memory of so many recorders, one of which is not `besides`."""
    until(
        lambda: len(regions(program)) == recorders and regions(program) - besides,
        f"the program has the memory of {recorders} recorders",
    )


@pytest.mark.parametrize("order", [("record", "timeline"), ("timeline", "record")], ids="-".join)
@pytest.mark.parametrize("language", PROGRAMS)
def test_both_see_all_spans_in_whichever_order_they_come_and_end(
    language: str, order: tuple[str, str], begin: Callable[..., Any], run: Run, folder: Path
) -> None:
    """The first is killed, and another takes its place: the second goes on and misses nothing."""
    program = PROGRAMS[language]
    goes_on = run(Path(program.goes_on[0]), *program.goes_on[1:])
    with Shell(folder / "gate", program) as shell:
        watched = ("-p", goes_on.pid, "-p", shell.pid)
        first = begin(order[0], "first", *watched)
        reaches(goes_on, 1)
        second = begin(order[1], "second", *watched)
        reaches(goes_on, 2)
        shell.run_it()
        before = regions(goes_on)
        first.stop(signal.SIGKILL)
        shell.run_it()
        third = begin(order[0], "third", *watched)
        reaches(goes_on, 2, besides=before)
        shell.run_it()
        besides = {int(tid) for tid in os.listdir(f"/proc/{goes_on.pid}/task")}
        seen = {
            kind: (in_ledger if kind == "record" else in_timeline)(recorder, besides)
            for kind, recorder in ((order[1], second), (order[0], third))
        }
        assert goes_on.runs and shell.runs
    of_second, of_third = seen[order[1]], seen[order[0]]
    assert by_name(of_third) == program.spans
    assert by_name(of_second) == {name: 3 * count for name, count in program.spans.items()}
    assert {key: of_second[key] for key in of_third} == of_third


def test_a_third_recorder_is_told_that_two_are_there(begin: Callable[..., Any], run: Run) -> None:
    loop = run("loopbench", "--seconds", 600, "--think-us", 50)
    watched = ("-p", loop.pid)
    recorders = [begin(kind, "second", *watched) for kind in ("timeline", "record")]
    reaches(loop, 2)
    command = [installed.tailscope(), "timeline", *watched, "--span", "sdk"]
    with Started(command, env=os.environ) as third:
        ended = third.wait()
    assert ended.code == 3
    assert "two other recorders serve the SDK" in ended.err
    assert "TAILSCOPE_SOCKET" in ended.err
    for recorder in recorders:
        recorder.stop(signal.SIGINT).clean()


def test_two_recordings_measure_the_same(record: Record, run: Run) -> None:
    """Each has meters of its own, so what one samples is not the other's choice."""
    naps = run("sleepbench", "--every", 1, "--nap-us", 1000, "--seconds", 600)
    first = record("-p", naps.pid, "--span", "sdk", name="first").ready()
    reaches(naps, 1)
    sampling = ("--sample", "25%")
    second = record("-p", naps.pid, "--span", "sdk", *sampling, name="second").ready()
    reaches(naps, 2)
    naps.works(50e6)
    for recorder in (second, first):
        recorder.interrupt().clean()
        ledger.check_books(recorder.ledger)
        assert ledger.count(recorder.ledger) > 10
    slept = "SELECT median(sleep_ns) FROM spans WHERE span = 'nap'"
    for recorder in (first, second):
        assert ledger.query(recorder.ledger, slept)[0][0] >= 500_000


def test_a_program_with_an_older_sdk_is_named_by_the_second(
    begin: Callable[..., Any], folder: Path
) -> None:
    older = folder / "older"
    whole = (installed.LAB / "loopbench").read_bytes()
    assert b"thread_second\0" in whole
    older.write_bytes(whole.replace(b"thread_second\0", b"thread_absent\0"))
    older.chmod(0o755)
    with Started([older, "--seconds", 600, "--think-us", 50]) as loop:
        first = begin("record", "first", "-p", loop.pid)
        reaches(loop, 1)
        second = begin("record", "second", "-p", loop.pid)
        until(lambda: "serves one recorder" in second.err, "the second tells of it")
        assert str(older) in second.err
        assert first.runs and len(regions(loop)) == 1
        for recorder in (first, second):
            recorder.stop(signal.SIGINT).clean()
