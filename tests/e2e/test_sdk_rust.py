"""The Rust SDK, recorded end to end: what its examples do is known exactly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Record
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import about, regions

Run = Callable[..., Started]

EXAMPLES = installed.ROOT / "target" / "release" / "examples"
THREADS = 3


@pytest.fixture
def nested() -> Path:
    program = EXAMPLES / "nested"
    assert program.exists(), "make build makes it"
    return program


def test_spans_nest_and_keep_their_names_and_ids(record: Record, nested: Path) -> None:
    recorder = record("--", nested, 500)
    pairs = recorder.wait().clean().json()["pairs"]
    assert pairs == THREADS * 500
    ledger.check_nested(recorder.ledger, pairs)
    assert about(recorder.ledger)["seen"] == 3 * pairs


def test_a_program_that_started_before_the_recorder_is_recorded(
    record: Record, run: Run, nested: Path
) -> None:
    busy = run(nested, 500, 600)
    recorder = record("-p", busy.pid, "--span", "sdk").ready()
    recorder.serves(busy)
    recorder.interrupt().clean()
    assert ledger.count(recorder.ledger, f"pid = {busy.pid}") > 1000
    ledger.check_books(recorder.ledger)


def test_a_recorder_that_is_killed_is_followed_by_another(
    record: Record, run: Run, nested: Path, nothing_left: None
) -> None:
    busy = run(nested, 500, 600)
    first = record("-p", busy.pid, "--span", "sdk", name="first").ready()
    first.serves(busy)
    before = regions(busy)
    first.kill()
    second = record("-p", busy.pid, "--span", "sdk", name="second").ready()
    second.serves(busy, besides=before)
    second.interrupt().clean()
    assert ledger.count(second.ledger) > 1000


def test_a_sample_is_drawn_in_the_program(record: Record, nested: Path) -> None:
    recorder = record("--sample", "20%", "--", nested, 5000)
    spans = 3 * recorder.wait().clean().json()["pairs"]
    rows = ledger.count(recorder.ledger)
    # Binomial: a fifth, give or take six times its deviation.
    assert abs(rows - spans / 5) < 6 * (spans * 0.16) ** 0.5
    assert about(recorder.ledger)["seen"] == spans


def test_events_that_cannot_be_counted_are_null_in_rows_that_are_there(record: Record) -> None:
    # On a machine with counters the values are known too: tests/guests/test_counters.py.
    recorder = record("--counters", "instructions", "--", EXAMPLES / "instructions", 20, 100, 1000)
    recorder.wait().clean()
    kinds = ("plain", "yields", "sleeps", "first", "second", "deep", "deeper")
    found = ledger.query(recorder.ledger, "SELECT span, count(*) FROM spans GROUP BY ALL")
    assert {(kind, 20) for kind in kinds} < set(found)
    assert {span for span, _ in found} == {*kinds, "other"}  # none that another thread ended
    (counter,) = about(recorder.ledger)["counters"]
    if not counter["counted"]:
        assert ledger.count(recorder.ledger, "instructions IS NOT NULL") == 0


def test_a_fork_in_mid_span_harms_neither_parent_nor_child(record: Record) -> None:
    recorder = record("--", EXAMPLES / "forking")
    pids = recorder.wait().clean().json()
    found = ledger.query(recorder.ledger, "SELECT span, pid, count(*) FROM spans GROUP BY ALL")
    assert set(found) == {
        ("outer", pids["parent"], 1),
        ("parent", pids["parent"], 1000),
        ("child", pids["child"], 1000),
    }
