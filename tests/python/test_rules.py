"""VarMRI's rules, on cases computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make, edit, rewrite
from tailscope.engines.sample import Sample
from tailscope.ledger.counters import COUNTERS, INTEL, TABLE_1, TABLE_2, TOTALS, Group, parents_of
from tailscope.present.text import Detail, render
from tailscope.statistics.rules import Event, correlation, jaccard, judge
from tailscope.statistics.varmri import VarMRI

METHOD = VarMRI()


def drawn(known: dict[str, list[bool]] | None = None, **values: list[int] | np.ndarray) -> Sample:
    """Rows of weight 1; the wall time plays no part in the rules."""
    arrays = {name: np.asarray(column, dtype=np.int64) for name, column in values.items()}
    rows = len(next(iter(arrays.values())))
    masks = {name: np.asarray(mask) for name, mask in (known or {}).items()}
    return Sample(np.zeros(rows, dtype=np.int64), np.ones(rows), arrays, masks, rows)


def test_overlap_is_spans_with_much_of_both_over_spans_with_much_of_either() -> None:
    rows = drawn(instructions=[9, 9, 9, 1, 1], cycles=[1, 7, 7, 7, 1])
    one, other = Event("instructions", 0.5, 9), Event("cycles", 0.4, 7)
    assert jaccard(rows, one, other) == pytest.approx(2 / 4)
    heavy = Sample(rows.wall, np.array([1, 1, 5, 1, 1.0]), rows.values, {}, 5)
    assert jaccard(heavy, one, other) == pytest.approx(6 / 8)


def test_a_lower_group_loses_impact_times_overlap_to_the_higher_one() -> None:
    # much of cycles: rows 1 2 3; of instructions: 0 1 2; of cache misses: 3 4.
    rows = drawn(
        instructions=[9, 9, 9, 1, 1, 1],
        cache_misses=[0, 0, 0, 5, 5, 0],
        cycles=[1, 7, 7, 7, 1, 1],
    )
    events = [
        Event("instructions", 0.5, 9),
        Event("cache_misses", 0.2, 5),
        Event("cycles", 0.4, 7),
    ]
    verdicts, pairs = judge(events, rows, METHOD)
    assert verdicts["instructions"].impact == 0.5
    # No span has much of both instructions and cache misses: nothing is taken.
    assert verdicts["cache_misses"].impact == 0.2
    # By instructions 0.5 × 2/4 = 0.25, by cache misses 0.2 × 1/4 = 0.05: the larger is taken.
    assert verdicts["cycles"].impact == pytest.approx(0.4 - 0.25)
    assert verdicts["cycles"].cut_by == "instructions"
    assert pairs == ()


def test_an_impact_is_not_cut_below_nothing() -> None:
    rows = drawn(instructions=[9, 9, 1, 1], cycles=[7, 7, 1, 1])
    verdicts, _ = judge([Event("instructions", 0.9, 9), Event("cycles", 0.3, 7)], rows, METHOD)
    assert verdicts["cycles"].impact == 0.0


def test_a_child_in_proportion_to_its_parent_is_dropped_and_another_is_not() -> None:
    irq = np.arange(200) * 10
    strict = drawn(irq=irq, softirq_timer=3 * irq)
    events = [Event("irq", 0.1, 900), Event("softirq_timer", 0.3, 2_700)]
    verdicts, pairs = judge(events, strict, METHOD)
    assert (verdicts["softirq_timer"].impact, verdicts["softirq_timer"].follows) == (None, "irq")
    assert verdicts["irq"].impact == 0.1
    assert pairs == ()
    loose = drawn(irq=irq, softirq_timer=3 * irq + np.tile([0, 800], 100))
    assert 0.8 < (correlation(loose, "irq", "softirq_timer") or 0) ** 2 < 0.99
    assert judge(events, loose, METHOD)[0]["softirq_timer"].impact == 0.3
    generous = VarMRI(proportion=0.8)
    assert judge(events, loose, generous)[0]["softirq_timer"].impact is None


def test_a_pair_that_no_rule_covers_is_reported_with_its_correlation() -> None:
    # Means 2 and 3; products of the differences 1 + 0 + 3, squares 2 and 14: r = 4 / √28.
    rows = drawn(lock=[1, 2, 3], io=[2, 1, 6])
    _, (pair,) = judge([Event("lock", 0.2, 3), Event("io", 0.3, 6)], rows, METHOD)
    assert pair.events == ("lock", "io")
    assert pair.correlation == pytest.approx(4 / np.sqrt(28))
    assert pair.overlap == 1.0


def test_events_that_hardly_matter_or_hardly_meet_are_no_pair() -> None:
    rows = drawn(lock=[1, 2, 3], io=[2, 1, 6])
    assert judge([Event("lock", 0.001, 3), Event("io", 0.3, 6)], rows, METHOD)[1] == ()
    rows = drawn(lock=[9, 0, 0, 9, 0, 0], io=[0, 9, 0, 9, 9, 0])
    assert judge([Event("lock", 0.2, 9), Event("io", 0.3, 9)], rows, METHOD)[1] == ()


def test_only_rows_in_which_both_were_measured_are_asked() -> None:
    rows = drawn(
        {"io": [True, True, True, False, False]}, lock=[1, 2, 3, 50, 0], io=[2, 4, 6, 0, 0]
    )
    assert correlation(rows, "lock", "io") == pytest.approx(1.0)
    assert jaccard(rows, Event("lock", 0.1, 3), Event("io", 0.1, 6)) == 1.0


def test_what_does_not_vary_has_no_correlation() -> None:
    assert correlation(drawn(lock=[1, 2], io=[3, 3]), "lock", "io") is None


def test_counters_in_a_ledger_are_judged_by_the_spans_that_have_them(make: Make) -> None:
    # One span in 20 is slow because it executes more instructions, and each instruction takes
    # four cycles; both counters are there in every other pair of spans.
    slow = np.arange(4_000) % 20 == 7
    ledger = make(wall_ns=np.where(slow, 900_000, 100_000) + np.arange(4_000) % 100)
    counted = "CASE WHEN row // 2 % 2 = 1 THEN {} END::BIGINT"
    value = "CASE WHEN row % 20 = 7 THEN 90000 ELSE 10000 + row % 7 END"
    rewrite(
        ledger,
        f"SELECT * EXCLUDE row, {counted.format(value)} AS instructions, "
        f"{counted.format(f'4 * ({value})')} AS cycles FROM {{rows}}",
    )
    found = tailscope.open(ledger).explain("p99")
    counters = {one.name: one for one in found.counters}
    assert counters["instructions"].measured_share == pytest.approx(0.5)
    assert counters["instructions"].impact == pytest.approx(8 / 9, abs=0.01)
    assert counters["instructions"].high_from == pytest.approx(90_000, rel=0.001)
    assert counters["cycles"].impact == pytest.approx(8 / 9, abs=0.01)
    assert counters["cycles"].ranked_impact == pytest.approx(0, abs=1e-9)
    assert counters["cycles"].cut_by == "instructions"
    assert found.causes[0].name == "running"


def test_a_counter_of_ones_own_is_shown_and_no_rule_speaks_of_it(make: Make) -> None:
    slow = np.arange(4_000) % 20 == 7
    ledger = make(wall_ns=np.where(slow, 900_000, 100_000) + np.arange(4_000) % 100)
    value = "CASE WHEN row % 20 = 7 THEN 90000 ELSE 10000 + row % 7 END::BIGINT"
    columns = ", ".join(f"{value} AS {name}" for name in ("instructions", "uops", "unheard"))
    rewrite(ledger, f"SELECT * EXCLUDE row, {columns} FROM {{rows}}")
    counters = [
        {"column": "uops", "event": "cpu/event=0xc2,name=uops/", "counted": True},
        {"column": "wall_ns", "event": "no counter", "counted": True},
        {"column": "missing", "event": "r1", "counted": False},
        "nonsense",
    ]
    edit(ledger, counters=counters)
    found = tailscope.open(ledger).explain("p99")
    counters = {one.name: one for one in found.counters}
    assert set(counters) == {"instructions", "uops"}
    assert counters["uops"].group == "OTHER"
    assert counters["uops"].ranked_impact == counters["uops"].impact
    assert counters["uops"].impact == pytest.approx(8 / 9, abs=0.01)
    assert ("instructions", "uops") in {pair.events for pair in found.pairs}
    assert "uops 0.89 (OTHER; in" in render(found, detail=Detail(impact=True))


def test_every_parent_is_listed_and_of_its_group_or_above() -> None:
    for name, counter in COUNTERS.items():
        if counter.parent:
            parent = COUNTERS[counter.parent]
            assert parent.group >= counter.group, name
            assert counter.parent != name
    assert len(INTEL) == len(set(INTEL)) >= 79


def test_the_papers_tables_are_followed() -> None:
    for group, names in TABLE_1.items():
        for name in names.split():
            assert COUNTERS[name].group is group
    assert {group: len(names.split()) for group, names in TABLE_1.items()} == {
        Group.CACHE: 29,
        Group.CYCLE: 28,
        Group.INST: 20,
    }
    for parent, children in TABLE_2.items():
        for child in children.split():
            assert parent in parents_of(child)
            # And a child of its total, as all events of its group are.
            totals = TOTALS[COUNTERS[child].group]
            assert child in totals or set(totals) <= set(parents_of(child))
    assert COUNTERS["branch_misses"].group is Group.INST
    assert parents_of("instructions") == parents_of("instructions_k") == ()


def test_an_event_in_proportion_to_its_total_is_dropped() -> None:
    cycles = np.arange(200) * 10
    rows = drawn(cycles=cycles, cycle_activity_stalls_l3_miss=2 * cycles)
    events = [Event("cycles", 0.3, 900), Event("cycle_activity_stalls_l3_miss", 0.3, 1_800)]
    verdicts, pairs = judge(events, rows, METHOD)
    assert verdicts["cycle_activity_stalls_l3_miss"].follows == "cycles"
    assert pairs == ()


def test_the_papers_proportion_is_through_the_origin() -> None:
    # Both hardly vary and have nothing to do with each other: from 0, a line explains them still.
    rng = np.random.default_rng(1)
    cycles, stalls = 1_000 + rng.integers(0, 50, 500), 400 + rng.integers(0, 20, 500)
    rows = drawn(cycles=cycles, stalled_cycles_backend=stalls)
    events = [Event("cycles", 0.3, 1_040), Event("stalled_cycles_backend", 0.2, 415)]
    assert abs(correlation(rows, "cycles", "stalled_cycles_backend") or 0) < 0.2
    assert judge(events, rows, METHOD)[0]["stalled_cycles_backend"].follows is None
    origin = VarMRI(proportional="origin")
    assert judge(events, rows, origin)[0]["stalled_cycles_backend"].follows == "cycles"
    # A constant part is no direct proportion.
    values = np.arange(1, 301) * 10
    rows = drawn(cycles=values + 2_000, stalled_cycles_backend=values)
    assert judge(events, rows, METHOD)[0]["stalled_cycles_backend"].follows == "cycles"
    assert judge(events, rows, origin)[0]["stalled_cycles_backend"].follows is None


def test_counters_have_typical_values_and_the_clock_a_frequency(make: Make) -> None:
    # One span in 20 runs at half the frequency: as many cycles take twice the time.
    slow = np.arange(4_000) % 20 == 7
    wall = np.where(slow, 200_000, 100_000) + np.arange(4_000) % 100
    ledger = make(wall_ns=wall)
    cycles = "300000 + row % 13"
    rewrite(
        ledger,
        f"SELECT * EXCLUDE row, ({cycles})::BIGINT AS cycles, "
        "(1000 + row % 7)::BIGINT AS instructions_k FROM {rows}",
    )
    found = tailscope.open(ledger).explain("p99")
    counters = {one.name: one for one in found.counters}
    assert counters["cycles"].target_mean == pytest.approx(300_006, rel=0.001)
    assert counters["instructions_k"].group == "INST"
    assert counters["instructions_k"].median_mean == pytest.approx(1_003, rel=0.001)
    assert found.frequency is not None
    assert found.frequency.target_ghz == pytest.approx(1.5, rel=0.002)
    assert found.frequency.median_ghz == pytest.approx(3.0, rel=0.002)
    length = counters["cycle_time_ps"]
    assert length.impact == pytest.approx(0.5, abs=0.01)
    assert length.high_share == pytest.approx(0.05, abs=0.001)
    said = found.to_dict()
    assert said["frequency"]["with_kernel"] is False
    told = " ".join(render(found, detail=Detail(impact=True)).split())
    assert "average frequency 1.50 GHz around p99, 3.00 GHz around the median" in told
    assert "of them left out" in told


def test_the_numbers_of_the_method_are_options(two_values: Path) -> None:
    ledger = tailscope.open(two_values)
    from tailscope.statistics.explanation import explain
    from tailscope.statistics.target import Target

    found = explain(ledger, Target(99), None, 1, VarMRI(ranges=50, fit=0.9, proportion=0.95))
    method = found.to_dict()["method"]
    assert (method["ranges"], method["fit"], method["proportion"]) == (50, 0.9, 0.95)
    assert found.causes[0].high_from_ns == pytest.approx(900_000, rel=0.001)
