"""Hardware counters of spans on this machine, whether it has any or not. The arm64 guest has some
(tests/guests)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Record
from rig import installed, ledger

COUNTBENCH = installed.LAB / "countbench"
SPANS, KINDS = 50, 3


@pytest.fixture(scope="session")
def rung(commands: dict[str, str]) -> dict[str, Any]:
    """What the doctor says of counters here."""
    done = subprocess.run(
        [installed.tailscope(), "doctor", "--json"], capture_output=True, text=True, timeout=60
    )
    if done.returncode == 3:
        pytest.skip(f"can't record here: {done.stderr.splitlines()[0]}")
    return json.loads(done.stdout)["ladder"]["counters"]


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
    about = json.loads((recorder.ledger / "ledger.json").read_text())
    counted = bool(rung["rung"])
    assert about["counters"] == [
        {"column": name, "event": name, "counted": counted} for name in ("instructions", "cycles")
    ]
    assert bool(about["ladder"]["counters"]["rung"]) == counted
    if not counted:
        assert ended.err.count("null in the ledger: instructions, cycles: ") == 1


def test_without_the_option_there_are_no_such_columns(record: Record) -> None:
    recorder = record("--", COUNTBENCH, "--spans", SPANS, "--lengths", 1000)
    recorder.wait().clean()
    about = json.loads((recorder.ledger / "ledger.json").read_text())
    assert "counters" not in about
    columns = ledger.query(recorder.ledger, "DESCRIBE spans")
    assert "instructions" not in {name for name, *_ in columns}
