"""Explaining: by hand where that is possible, against planted truth where it isn't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import QUIET, START_NS, Plant, World, generate, simulate, truth
from tailscope.statistics.explanation import Cause, Explanation, explain
from tailscope.statistics.target import parse


def cause(explanation: Explanation, name: str) -> Cause:
    return next(found for found in explanation.causes if found.name == name)


def near(expected: float, relative: float = 0.001) -> object:
    return pytest.approx(expected, rel=relative, abs=0.5)


def test_a_tail_of_one_cause_by_hand(two_values: Path) -> None:
    found = tailscope.open(two_values).explain("p99")
    lock = found.causes[0]
    assert lock.name == "lock"
    assert found.p50_ns == near(100_000)
    assert found.at_target.ns == near(1_000_000)
    assert found.span.max_ns == 1_000_000
    assert lock.saving.ns == near(900_000)
    assert lock.predicted.ns == near(100_000)
    assert lock.share == near(1.0)
    assert lock.impact == near(0.9)
    assert (lock.spans, lock.events) == (20, 40)
    assert lock.tail_mean_ns == near(900_000)
    running = cause(found, "running")
    assert (running.saving.ns, running.share) == (0, pytest.approx(0, abs=0.001))


def test_two_causes_that_hide_each_other_are_worth_more_together(make: Make) -> None:
    kind = np.arange(1000) % 50
    lock, io = kind == 10, kind == 30
    ledger = make(
        wall_ns=np.where(lock | io, 1_000_000, 100_000),
        lock_ns=np.where(lock, 900_000, 0),
        io_ns=np.where(io, 900_000, 0),
    )
    found = tailscope.open(ledger).explain("p99")
    assert cause(found, "lock").saving.ns == 0
    assert cause(found, "io").saving.ns == 0
    assert cause(found, "lock").share == near(0.5)
    assert set(found.together[0].causes) == {"lock", "io"}
    assert found.together[0].predicted.ns == near(100_000)


def test_the_causes_that_were_asked_for_are_fixed_at_once(make: Make) -> None:
    kind = np.arange(1000) % 50
    lock, io, fault = kind == 10, kind == 30, kind == 40
    ledger = make(
        wall_ns=np.where(lock | io, 1_000_000, np.where(fault, 500_000, 100_000)),
        lock_ns=np.where(lock, 900_000, 0),
        io_ns=np.where(io, 900_000, 0),
        fault_ns=np.where(fault, 400_000, 0),
    )
    with_all = tailscope.open(ledger)
    asked = explain(with_all, parse("p99"), None, 1, without=("io", "lock")).without
    assert asked is not None
    assert asked.predicted.ns == near(500_000)
    never = explain(with_all, parse("p99"), None, 1, without=("steal",)).without
    assert never is not None
    assert (never.predicted.ns, never.saving.ns) == (near(1_000_000), 0)


def test_a_cause_is_brought_down_to_its_median_not_to_zero(make: Make) -> None:
    irq = np.where(np.arange(1000) % 40 == 0, 50_000, 2_000)
    found = tailscope.open(make(wall_ns=100_000 + irq, irq_ns=irq)).explain("p99")
    assert cause(found, "irq").median_ns == 2_000
    assert cause(found, "irq").predicted.ns == near(102_000)


def test_a_row_twice_is_a_row_of_weight_two(make: Make) -> None:
    rng = np.random.default_rng(8)
    wall = rng.integers(50_000, 150_000, 400)
    lock = np.where(rng.random(400) < 0.1, wall // 2, 0)
    weight = rng.integers(1, 4, 400)
    start = START_NS + np.arange(400) * 1_000_000
    once = make("once", wall_ns=wall, lock_ns=lock, weight=weight, start_ns=start)
    again = np.repeat(np.arange(400), weight)
    many = make("many", wall_ns=wall[again], lock_ns=lock[again], start_ns=start[again])
    one, other = tailscope.open(once).explain("p95"), tailscope.open(many).explain("p95")
    assert one.at_target == other.at_target
    for mine, yours in zip(one.causes, other.causes, strict=True):
        assert mine.name == yours.name
        assert mine.saving.ns == yours.saving.ns
        assert mine.share == pytest.approx(yours.share)
        assert mine.impact == yours.impact
        assert mine.spans == pytest.approx(yours.spans)


@pytest.mark.parametrize("percentile", [99, 99.9])
def test_the_saving_of_a_planted_cause_is_right(
    planted: tuple[Path, World], percentile: float
) -> None:
    folder, world = planted
    # The generator cuts a world into pieces of its own seeds; this one is a single piece.
    world = replace(world, seed=world.seed * 1000)
    found = tailscope.open(folder).explain(f"p{percentile}")
    before, after = truth(world, percentile), truth(world, percentile, ("runqueue",))
    runqueue = found.causes[0]
    assert runqueue.name == "runqueue"
    assert runqueue.saving.ns == pytest.approx(before - after, rel=0.1)
    assert runqueue.predicted.ns == pytest.approx(after, rel=0.1)
    assert runqueue.saving.lo <= before - after <= runqueue.saving.hi
    assert runqueue.share == pytest.approx(1, abs=0.05)


def test_each_cause_of_a_mixture_is_worth_what_fixing_it_saves(tmp_path: Path) -> None:
    plants = (
        *(plant for plant in QUIET if plant.cause != "lock"),
        Plant("runqueue", 0.25, 700_000, 900_000, coverage=0.05),
        Plant("lock", 0.008, 900_000, 300_000),
    )
    world = World(200_000, seconds=300.0, plants=plants, seed=5)
    found = tailscope.open(generate(tmp_path / "ledger", world)).explain("p99")
    world = replace(world, seed=world.seed * 1000)
    before = truth(world, 99)
    for name in ("runqueue", "lock"):
        after = truth(world, 99, (name,))
        assert cause(found, name).saving.ns == pytest.approx(before - after, rel=0.1, abs=2_000)
    assert found.together[0].predicted.ns == near(truth(world, 99, ("runqueue", "lock")), 0.02)


def test_what_was_not_measured_is_not_zero_but_absent_with_its_reason(two_values: Path) -> None:
    found = tailscope.open(two_values).explain()
    assert found.provenance.not_measured["throttled"].startswith("no CPU quota")
    assert "steal" not in [cause.name for cause in found.causes]
    assert "steal" not in found.never
    assert "io" in found.never


def test_two_ledgers_are_one_and_the_gap_between_them_is_no_time(make: Make) -> None:
    late = START_NS + 10**14 + np.arange(1000) * 1_000_000
    wall = np.full(1000, 100_000)
    one, two = make("one", wall_ns=wall), make("two", wall_ns=wall * 2, start_ns=late)
    found = tailscope.open(one, two).explain("p99")
    assert found.span.rows == 2000
    assert found.seconds == pytest.approx(1.998, rel=0.01)
    assert sum(block.spans > 0 for block in found.timeline) > 80
    assert len(found.provenance.recordings) == 2


def test_the_span_with_most_spans_is_explained_unless_another_is_named(make: Make) -> None:
    world = World(10, seconds=1)
    make(wall_ns=[100] * 10, weight=[1.0] * 10, world=replace(world, span="often"))
    folder = make(wall_ns=[900] * 5, weight=[9.0] * 5, number=1, world=replace(world, span="heavy"))
    assert tailscope.open(folder).explain().span.name == "heavy"
    found = tailscope.open(folder).explain(span="often")
    assert (found.span.name, found.span.spans) == ("often", 10)
    assert [(other.name, other.spans) for other in found.others] == [("heavy", 45)]


def test_classes_add_up_to_all_spans_and_to_their_wall_time(planted: tuple[Path, World]) -> None:
    found = tailscope.open(planted[0]).explain()
    assert sum(chosen.spans for chosen in found.classes) == pytest.approx(found.span.spans)
    for chosen in found.classes:
        assert sum(chosen.causes_ns.values()) == pytest.approx(chosen.mean_ns)
    for span in found.worst:
        assert sum(span.causes.values()) == span.wall_ns
    tail = sum(block.spans for block in found.timeline)
    assert tail == pytest.approx(found.span.spans * 0.01, rel=0.05)


def test_the_worst_spans_are_the_slowest_rows(planted: tuple[Path, World]) -> None:
    folder, world = planted
    walls = np.sort(simulate(replace(world, seed=world.seed * 1000))["wall_ns"])[::-1]
    found = tailscope.open(folder).explain()
    assert [span.wall_ns for span in found.worst] == walls[: len(found.worst)].tolist()


def test_causes_are_a_short_list_of_rows(two_values: Path) -> None:
    causes = tailscope.open(str(two_values)).causes("p99")
    assert causes[0].name == "lock"
    assert [found.name for found in causes] == ["lock", "running"]
