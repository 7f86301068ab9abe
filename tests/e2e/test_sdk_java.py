"""The Java SDK, recorded end to end: what its programs do is known exactly."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Record
from rig import ledger
from rig.java import CLASSES, JAR, java
from rig.processes import Started
from rig.recorder import about, regions
from rig.waiting import until

THREADS = 3


def makes_spans(program: Started) -> None:
    """Waits until another thousand of its pairs were metered, whatever the JVM has to do first."""
    before = program.out.count("metered")
    until(lambda: not program.runs or program.out.count("metered") > before + 1, "it makes spans")
    assert program.runs, program.wait()


@pytest.fixture
def busy() -> Iterator[Started]:
    """A program that makes spans until it is ended."""
    running = Started(java("Nesting", 200, 600))
    with running:
        yield running


def test_spans_nest_and_keep_their_names_and_ids(record: Record) -> None:
    recorder = record("--span", "sdk", "--", *java("Nesting", 500))
    pairs = recorder.wait().clean().json()["pairs"]
    assert pairs == THREADS * 500
    ledger.check_nested(recorder.ledger, pairs)
    assert about(recorder.ledger)["seen"] == 3 * pairs


def test_a_program_that_started_before_the_recorder_is_recorded(
    record: Record, busy: Started
) -> None:
    recorder = record("-p", busy.pid, "--span", "sdk").ready()
    recorder.serves(busy)
    makes_spans(busy)
    recorder.interrupt().clean()
    assert ledger.count(recorder.ledger, f"pid = {busy.pid}") > 1000
    ledger.check_books(recorder.ledger)
    explained = ledger.explain(recorder.ledger, options=("--span", "inner"))
    assert 0 < explained["p50_ns"] < explained["target_ns"]["ns"]


def test_the_sdk_in_a_java_process_is_found_without_being_asked(
    record: Record, busy: Started
) -> None:
    until(lambda: "tailscope-sdk" in Path(f"/proc/{busy.pid}/maps").read_text(), "it is mapped")
    recorder = record("-p", busy.pid, "-d", "1s")
    assert "recording sdk" in recorder.wait().clean().err


def test_a_recorder_that_is_killed_is_followed_by_another(
    record: Record, busy: Started, nothing_left: None
) -> None:
    first = record("-p", busy.pid, "--span", "sdk", name="first").ready()
    first.serves(busy)
    before = regions(busy)
    first.kill()
    second = record("-p", busy.pid, "--span", "sdk", name="second").ready()
    second.serves(busy, besides=before)
    makes_spans(busy)
    second.interrupt().clean()
    assert ledger.count(second.ledger) > 1000


def test_every_span_of_threads_that_come_and_go_is_counted(record: Record) -> None:
    recorder = record("--span", "sdk", "--", *java("Storm", 400, 25))
    spans = recorder.wait().clean().json()["spans"]
    told = about(recorder.ledger)
    lost = sum(told["lost"][where] for where in ("ring_full", "region_full", "threads"))
    assert ledger.count(recorder.ledger) + lost == spans
    assert told["seen"] == spans


def test_a_sample_is_drawn_in_the_program(record: Record) -> None:
    recorder = record("--span", "sdk", "--sample", "20%", "--", *java("Storm", 20, 2000))
    spans = recorder.wait().clean().json()["spans"]
    rows = ledger.count(recorder.ledger)
    # Binomial: a fifth, give or take six times its deviation.
    assert abs(rows - spans / 5) < 6 * (spans * 0.16) ** 0.5
    assert about(recorder.ledger)["seen"] == spans


def test_what_is_kept_weighs_what_is_not(record: Record) -> None:
    recorder = record("--span", "sdk", "--keep", "10%", "--", *java("Storm", 20, 2000))
    spans = recorder.wait().clean().json()["spans"]
    ((rows, weight),) = ledger.query(recorder.ledger, "SELECT count(*), sum(weight) FROM spans")
    assert about(recorder.ledger)["seen"] == spans
    assert 0 < rows < spans / 2
    # Each of the spans is drawn for; six deviations of what a tenth of them weighs.
    assert abs(weight - spans) < 6 * (spans * 9) ** 0.5


def test_a_span_that_would_be_wrong_is_not_recorded(record: Record) -> None:
    recorder = record("--span", "sdk", "--", *java("Virtual", 1000))
    ended = recorder.wait().clean()
    assert ended.json()["metered"] == 0
    assert ledger.count_by_span(recorder.ledger) == {"platform": 1000, "other": 1, "last": 1}
    assert "virtual threads" in ended.err


def test_names_are_cut_between_letters_and_bounded(record: Record) -> None:
    recorder = record("--span", "sdk", "--", *java("Names"))
    assert recorder.wait().clean().json()["problem"] == ""
    found = ledger.count_by_span(recorder.ledger)
    # 255 names: the long one, and 254 of the 300.
    assert found.pop("(unnamed)") == 2 + 300 - 254
    assert found.pop("ä" * 29) == 1
    assert found == {f"name {i}": 1 for i in range(254)}


def test_without_a_recorder_a_program_runs_and_writes_nothing(folder: Path) -> None:
    before = set(folder.iterdir())
    done = subprocess.run(java("Nesting", 100), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert not done.stderr
    assert set(folder.iterdir()) == before


def test_on_an_older_java_the_calls_do_nothing_and_say_why(record: Record) -> None:
    old = shutil.which("java", path="/usr/bin")
    if not old:
        pytest.skip("Debian's Java is not installed")
    version = subprocess.run([old, "--version"], capture_output=True, text=True, timeout=60)
    if int(version.stdout.split()[1].split(".")[0]) >= 22:
        pytest.skip("Debian's Java is new enough")
    path = f"{CLASSES}:{JAR}"
    done = subprocess.run([old, "-cp", path, "Names"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    assert "java/lang/foreign" in done.stdout or "java.lang.foreign" in done.stdout, done


def test_readings_that_fault_are_passed_over_among_a_jvms_own_faults() -> None:
    """No user space here may read counters, so each reading faults for real."""
    if Path("/sys/bus/event_source/devices/cpu/rdpmc").exists():
        pytest.skip("this machine has counters, which programs may be allowed to read")
    for option in ("-Xmixed", "-Xint"):
        done = subprocess.run(
            java("tailscope.Faulting", options=(option,)),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done
        *threads, last = (json.loads(line) for line in done.stdout.splitlines())
        assert len(threads) == 2
        for thread in threads:
            assert thread["refused"] == thread["of"] > 0
            assert thread["nulls"] == thread["of"] // 10
            assert thread["overflows"] > 0
        assert last == {"guarded": True}


def test_counters_are_null_where_the_machine_has_none(record: Record) -> None:
    recorder = record("--span", "sdk", "--counters", "instructions", "--", *java("Nesting", 500))
    recorder.wait().clean()
    if about(recorder.ledger)["ladder"]["counters"]["rung"]:
        pytest.skip("this machine has counters")
    assert (
        ledger.count(recorder.ledger)
        == ledger.count(recorder.ledger, "instructions IS NULL")
        == 9 * 500
    )
