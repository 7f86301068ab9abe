"""The Java agent: spans in programs whose source does not know of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Record
from rig import ledger
from rig.java import CLASSES, JAR, java, jcmd
from rig.processes import Started
from rig.recorder import about
from rig.waiting import until

WOVEN = "Woven.ends,Woven.ends2,throwing:Woven.fails,Woven.loops,Woven.answer,Woven$Inner.work"


def test_a_span_ends_however_its_method_does(record: Record) -> None:
    agent = f"-javaagent:{JAR}=span={WOVEN}"
    recorder = record("--span", "sdk", "--", *java("Woven", options=(agent,)))
    ended = recorder.wait().clean()
    assert "no spans" not in ended.err
    assert "Woven has no method ends2 with code" in ended.err
    found = dict(ledger.query(recorder.ledger, "SELECT span, count(*) FROM spans GROUP BY span"))
    assert found == {
        "Woven.ends": 30,
        "throwing": 20,
        "Woven.loops": 10,
        "Woven.answer": 40,  # of two overloads
        "Inner.work": 10,
    }
    assert ended.json() == {"sum": 10 * (1 + 2 + 3) + 20 * 7 + 10 * 45 + 10 * 5 + 20 * 11}


def test_a_program_that_runs_already_gets_spans_without_a_restart(record: Record) -> None:
    with Started(java("Nesting", 200, 600)) as program:
        until(lambda: Path(f"/proc/{program.pid}/task").exists() and program.runs, "it runs")
        asked = ("JVMTI.agent_load", JAR, "work:Nesting.work,Nesting.missing")
        command = jcmd(program.pid, *asked)
        until(
            lambda: (
                "return code: 0"
                in subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
            ),
            "the agent is loaded",
        )
        until(lambda: "no method missing" in program.err, "it has changed the class")
        recorder = record("-p", program.pid, "--span", "sdk").ready()
        recorder.serves(program, 500e6)
        recorder.interrupt().clean()
    # Twice in each outer span, of which some are cut off at the begin and the end.
    counts = dict(ledger.query(recorder.ledger, "SELECT span, count(*) FROM spans GROUP BY span"))
    assert counts.keys() == {"outer", "scoped", "inner", "work"}
    assert abs(counts["work"] - 2 * counts["outer"]) < 50 + lost_rows(recorder.ledger)
    inside = ledger.query(
        recorder.ledger,
        "SELECT count(*) FROM spans AS w JOIN spans AS i ON w.tid = i.tid AND i.span = 'inner' "
        "AND w.start_ns >= i.start_ns - 1 AND w.start_ns + w.wall_ns <= i.start_ns + i.wall_ns + 1 "
        "WHERE w.span = 'work'",
    )
    assert abs(inside[0][0] - counts["inner"]) < 50 + lost_rows(recorder.ledger)


def lost_rows(folder: Path) -> int:
    return sum(about(folder)["lost"][k] for k in ("ring_full", "region_full", "threads"))


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ("", "name no span"),
        ("span=work", "'work' is no method of a class"),
        ("span=java.lang.String.length", "belongs to Java"),
        ("place=Nesting", "'Nesting' is no package and no class with '.*'"),
        ("place=java.util.*", "'java.util' belongs to Java"),
        (".*", "is no package"),
        ("span=Nesting.<init>", "'<init>' can't become a span"),
    ],
)
def test_options_that_are_wrong_are_answered_and_the_program_runs(
    options: str, answer: str
) -> None:
    command = java("Nesting", 1, options=(f"-javaagent:{JAR}={options}",))
    with Started(command) as program:
        ended = program.wait().clean()
    assert ended.json()["pairs"] == 3
    assert answer in ended.err and "there will be no spans" in ended.err


def test_on_an_older_java_the_agent_says_what_it_needs() -> None:
    old = shutil.which("java", path="/usr/bin")
    if not old:
        pytest.skip("Debian's Java is not installed")
    command = [
        old,
        f"-javaagent:{JAR}=span=Nesting.work",
        "-cp",
        f"{CLASSES}:{JAR}",
        "Nesting",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert "needs JDK 24" in done.stderr
