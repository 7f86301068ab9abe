"""Hardware counters of spans on this machine, whether it has any or not. The arm64 guest has some
(tests/guests)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Record
from rig import installed, ledger
from rig.agent import Agent, recorded
from rig.processes import Started
from rig.recorder import about, doctor

COUNTBENCH = installed.LAB / "countbench"
SPANS, KINDS = 50, 3


@pytest.fixture(scope="session")
def rung(commands: dict[str, str]) -> dict[str, Any]:
    """What the doctor says of counters here."""
    return json.loads(doctor("--json"))["ladder"]["counters"]


def check(folder: Path, rung: dict[str, Any]) -> None:
    """Every row is there; counted to 1 %, or null where the machine can't."""
    assert ledger.count(folder) == SPANS * KINDS
    ledger.check_books(folder)
    if rung["rung"]:
        wrong = "instructions IS NULL OR abs(instructions - id) > 0.01 * id"
        assert ledger.count(folder, wrong) <= SPANS * KINDS / 50
    else:
        assert rung["why"]
        assert ledger.count(folder, "instructions IS NULL AND cycles IS NULL") == SPANS * KINDS


def test_spans_are_counted_or_the_columns_are_null(record: Record, rung: dict[str, Any]) -> None:
    program = [COUNTBENCH, "--spans", SPANS, "--lengths", 100_000]
    recorder = record("--counters", "instructions,cycles,instructions", "--", *program)
    ended = recorder.wait().clean()
    check(recorder.ledger, rung)
    told = about(recorder.ledger)
    counted = bool(rung["rung"])
    assert told["counters"] == [
        {"column": name, "event": name, "counted": counted} for name in ("instructions", "cycles")
    ]
    assert bool(told["ladder"]["counters"]["rung"]) == counted
    if not counted:
        assert ended.err.count("null in the ledger: instructions, cycles: ") == 1


def test_without_the_option_there_are_no_such_columns(record: Record) -> None:
    recorder = record("--", COUNTBENCH, "--spans", SPANS, "--lengths", 1000)
    recorder.wait().clean()
    assert "counters" not in about(recorder.ledger)
    columns = ledger.query(recorder.ledger, "DESCRIBE spans")
    assert "instructions" not in {name for name, *_ in columns}


def test_an_agent_counts_as_its_configuration_says(
    agent: Callable[..., Agent], run: Callable[..., Started], rung: dict[str, Any]
) -> None:
    counters = 'spans = ["sdk"]\ncounters = ["instructions", "cycles"]'
    started = agent(f'exe = "{COUNTBENCH}"', record=counters)
    run(COUNTBENCH.name, "--spans", SPANS, "--lengths", 100_000).wait().clean()
    assert recorded(started) > 0
    started.stop().clean()
    (only,) = started.ledgers()
    counted = bool(rung["rung"])
    assert [one["counted"] for one in about(only)["counters"]] == [counted, counted]
    nulls = ledger.count(only, "instructions IS NULL AND cycles IS NULL")
    assert (nulls == 0) if counted else (nulls == ledger.count(only))
    assert ("null in the ledger: instructions, cycles: " in started.err) != counted
