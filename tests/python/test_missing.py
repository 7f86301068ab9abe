"""Causes that were not measured in all rows: judged by those in which they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from explain_synthetic import World, generate
from tailscope.statistics.explanation import Cause, Explanation


def cause(explanation: Explanation, name: str) -> Cause:
    return next(found for found in explanation.causes if found.name == name)


def without(ledger: Path, name: str, where: str) -> Path:
    """The ledger with a cause null in some rows."""
    columns = ", ".join(
        f"CASE WHEN NOT ({where}) THEN {name}_{part} END AS {name}_{part}" for part in ("ns", "n")
    )
    return rewrite(ledger, f"SELECT * EXCLUDE row REPLACE ({columns}) FROM {{rows}}")


def test_a_cause_null_in_two_of_three_rows_by_hand(two_values: Path) -> None:
    # Of 1,000 spans 20 are slow, evenly; each third span knows its lock time.
    whole = cause(tailscope.open(two_values).explain("p99"), "lock")
    found = tailscope.open(without(two_values, "lock", "row % 3 > 0")).explain("p99")
    lock = cause(found, "lock")
    assert lock.measured_share == pytest.approx(334 / 1000)
    assert lock.saving.ns == whole.saving.ns
    assert lock.predicted.ns == pytest.approx(whole.predicted.ns)
    assert lock.impact == whole.impact
    assert lock.high_from_ns == whole.high_from_ns
    assert lock.share == pytest.approx(whole.share or 0, abs=0.01)
    assert lock.fair_ns == pytest.approx(whole.fair_ns or 0)
    assert lock.spans == pytest.approx(20, rel=0.1)
    running = cause(found, "running")
    assert running.saving.ns == 0
    assert any("lock was measured in 33% of the rows" in said for said in found.provenance.warnings)


def test_what_is_left_of_the_wall_time_is_not_called_running(two_values: Path) -> None:
    found = tailscope.open(without(two_values, "lock", "row % 5 < 3")).explain("p99")
    assert cause(found, "running").share == pytest.approx(0, abs=0.01)
    tail = found.classes[-1]
    assert tail.causes_ns["lock"] == pytest.approx(900_000, rel=0.01)


@pytest.mark.parametrize("name", ["runqueue", "softirq_net"])
def test_causes_that_60_percent_of_the_rows_lack_keep_their_worth(
    tmp_path: Path, name: str
) -> None:
    world = World(200_000, seconds=300.0, seed=9)
    folder = generate(tmp_path / "ledger", world)
    whole = cause(tailscope.open(folder).explain("p99"), name)
    # As counters that take turns: whole epochs, at random.
    lacking = "hash(start_ns // 1000000000) % 10 < 6"
    found = cause(tailscope.open(without(folder, name, lacking)).explain("p99"), name)
    assert found.measured_share == pytest.approx(0.4, abs=0.1)
    assert found.saving.ns == pytest.approx(whole.saving.ns, rel=0.1, abs=3_000)
    assert found.spans == pytest.approx(whole.spans, rel=0.2)


def test_two_causes_that_are_never_known_together(make: Make) -> None:
    kind = np.arange(1200) % 60
    slow = (kind == 10) | (kind == 31)
    ledger = make(
        wall_ns=np.where(slow, 1_000_000, 100_000),
        lock_ns=np.where(kind == 10, 900_000, 0),
        io_ns=np.where(kind == 31, 900_000, 0),
    )
    without(ledger, "lock", "row % 2 = 1")
    without(ledger, "io", "row % 2 = 0")
    found = tailscope.open(ledger).explain("p99")
    # Among the rows that know its own, each is the only reason to be slow.
    assert cause(found, "lock").saving.ns == pytest.approx(900_000, rel=0.001)
    assert cause(found, "io").saving.ns == pytest.approx(900_000, rel=0.001)
    assert found.together == ()
    assert cause(found, "running").saving.ns >= 0


def test_running_is_not_blamed_for_what_took_turns_at_being_measured(make: Make) -> None:
    # Five causes take turns: no span knows all of them, and 2 % of the spans wait for a lock.
    rng = np.random.default_rng(2)
    rows = 60_000
    lock = np.where(np.arange(rows) % 50 == 7, 900_000, 0)
    small = {f"{name}_ns": rng.integers(100, 900, rows) for name in ("irq", "fault", "io", "sleep")}
    ledger = make(wall_ns=100_000 + lock + sum(small.values()), lock_ns=lock, **small)
    for number, name in enumerate(("irq", "fault", "io", "sleep", "lock")):
        without(ledger, name, f"(row // 1000) % 5 = {number}")
    found = tailscope.open(ledger).explain("p99")
    lock_cause, running = cause(found, "lock"), cause(found, "running")
    assert found.causes[0] is lock_cause
    assert lock_cause.saving.ns == pytest.approx(900_000, rel=0.01)
    assert running.measured_share < 1
    assert running.saving.ns < 5_000
    assert lock_cause.fair_ns == pytest.approx(900_000, rel=0.02)


def test_a_cause_is_worth_its_part_of_the_percentile_whatever_the_luck_of_who_knows_it(
    make: Make,
) -> None:
    """Where the lock was measured it happened to last longer: 11/12 of 1.2 ms are 11/12 of 0.8."""
    rows = np.arange(2_000)
    slow = rows % 100 >= 96
    lock = np.where(slow, np.where(rows % 2 == 0, 1_100_000, 700_000), 0)
    ledger = without(make(wall_ns=100_000 + lock, lock_ns=lock, lock_n=slow), "lock", "row % 2 = 1")
    found = tailscope.open(ledger).explain("p98")
    assert found.at_target.ns == pytest.approx(800_000, rel=0.001)
    saving = cause(found, "lock").saving
    assert saving.ns == pytest.approx(800_000 * 11 / 12, rel=0.001)
    assert saving.lo <= saving.ns <= saving.hi
