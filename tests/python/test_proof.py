"""The proof's verdicts and its page: what counts as right, and that no miss is left out."""

from __future__ import annotations

from typing import Any

import pytest
from proof import table
from proof.cell import Effect
from proof.faults import FAULTS, ONE_SIZE, SIZES, command, quota
from proof.judge import verdict
from proof.servers import SERVERS


def explained(
    p99_ns: float, without: tuple[float, float] | None, usual_ns: float = 0.0, **savings: float
) -> dict:
    """What explain says, as far as the proof reads it; fair shares are as large as savings."""
    causes = [
        {"name": name, "saving_ns": ns, "fair_ns": ns}
        for name, ns in sorted(savings.items(), key=lambda one: -one[1])
    ]
    predicted = None
    if without:
        lo, hi = without
        predicted = {
            "predicted_ns": (lo + hi) / 2,
            "predicted_lo_ns": lo + 1,
            "predicted_hi_ns": hi - 1,
            "again_lo_ns": lo,
            "again_hi_ns": hi,
            "usual_ns": usual_ns,
        }
    return {
        "p50_ns": 10_000.0,
        "target_ns": {"ns": p99_ns, "lo": p99_ns * 0.9, "hi": p99_ns * 1.1},
        "span": {"spans": 5000.0},
        "causes": causes,
        "without": predicted,
    }


def judged(fault: str, calm_ns: float = 20_000, **savings: float) -> dict[str, Any]:
    """The verdict where p99 is 100 µs and predicted to be 15 to 25 µs without the fault."""
    without = None if fault == "none" else (15_000.0, 25_000.0)
    return verdict(FAULTS[fault], explained(100_000, without, **savings), explained(calm_ns, None))


def test_the_planted_cause_must_come_first() -> None:
    assert judged("hog", runqueue=80_000, queue=10_000)["top"]
    assert judged("hog", preempted=80_000, queue=10_000)["top"]
    assert not judged("hog", queue=80_000, runqueue=10_000)["top"]


def test_what_a_span_does_itself_is_no_planted_fault() -> None:
    assert not judged("hog", running=80_000, runqueue=10_000)["top"]


def test_a_cause_that_saves_nothing_is_not_found() -> None:
    assert not judged("hog", runqueue=0)["top"]


def test_of_two_faults_both_must_come_before_anything_else() -> None:
    assert judged("two", runqueue=80_000, preempted=60_000, softirq_net=20_000)["top"]
    assert judged("two", irq=80_000, runqueue=20_000, queue=5_000)["top"]
    assert not judged("two", runqueue=80_000, queue=60_000, softirq_net=20_000)["top"]
    assert not judged("two", runqueue=80_000, preempted=60_000)["top"]


def test_two_faults_that_hide_each_other_count_by_their_fair_shares() -> None:
    found = explained(100_000, None, softirq_net=60_000, running=9_000, runqueue=1_000)
    found["causes"][2]["fair_ns"] = 20_000
    assert verdict(FAULTS["two"], found, found)["top"]
    found["causes"][2]["fair_ns"] = None  # not among those that share
    assert not verdict(FAULTS["two"], found, found)["top"]


def test_with_nothing_planted_no_cause_may_save_more_than_a_tenth() -> None:
    assert judged("none", runqueue=9_000, running=60_000)["top"]
    assert not judged("none", runqueue=11_000)["top"]


@pytest.mark.parametrize(("calm_ns", "held"), [(20_000, True), (14_000, False), (26_000, False)])
def test_what_came_true_must_lie_in_the_predicted_interval(calm_ns: float, held: bool) -> None:
    assert judged("hog", calm_ns, runqueue=80_000)["held"] is held


def test_nothing_is_predicted_where_nothing_is_planted() -> None:
    assert "held" not in judged("none", runqueue=1_000)


@pytest.mark.parametrize(
    ("hi_ns", "usual_ns", "held"), [(99_000, 9.0, True), (101_000, 9.0, False)]
)
def test_an_interval_up_to_p99_as_it_is_says_nothing_of_what_is_usual(
    hi_ns: float, usual_ns: float, held: bool
) -> None:
    planted = explained(100_000, (15_000.0, hi_ns), usual_ns, runqueue=80_000)
    found = verdict(FAULTS["hog"], planted, explained(20_000, None))
    assert found["held"] == held
    # Luck alone may reach as far.
    planted = explained(100_000, (15_000.0, hi_ns), runqueue=80_000)
    assert verdict(FAULTS["hog"], planted, explained(20_000, None))["held"]


def test_what_a_plant_does_besides_goes_with_it_and_does_not_count_as_found() -> None:
    pages = FAULTS["pages"]
    assert pages.all_causes == {"fault", "irq", "io"}
    found = verdict(
        pages,
        explained(100_000, (15_000.0, 25_000.0), irq=80_000, fault=10_000),
        explained(20_000, None),
    )
    assert not found["top"]
    assert FAULTS["hog"].all_causes == {"preempted", "runqueue"}


def test_the_page_counts_and_shows_every_miss() -> None:
    large = {"size": 1, "enough": True}
    cells = {
        "memcached:none": judged("none", runqueue=11_000) | large,
        "memcached:hog": judged("hog", runqueue=80_000) | large,
        "redis:hog": judged("hog", 30_000, queue=80_000, runqueue=10_000) | large,
        "nginx:hog": {"error": "the load ended early with code 3"},
    }
    bars = [(bar.what, bar.bar, bar.figure, bar.held) for bar in table.bars(cells)]
    assert bars == [
        ("the planted fault is the top cause", "at least 95 %", "1 of 2 (50 %)", False),
        ("nothing planted: no cause above 10 % of p99", "all", "0 of 1 (0 %)", False),
        ("p99 after removal is in the predicted interval", "at least 80 %", "1 of 2 (50 %)", False),
        ("cells that could not be measured", "0", "1", False),
    ]
    listed = dict(table.sections(cells))["Misses"]
    assert listed.count("redis:hog") == 2, listed
    assert "queue 80.0" in listed or "queue 80" in listed
    assert "memcached:none" in listed and "nginx:hog" in listed and "memcached:hog" not in listed


def test_every_cell_of_the_matrix_is_marked_or_excused() -> None:
    cells = {"redis:hog": judged("hog", runqueue=80_000)}
    lines = [line for line in table.matrix(cells) if line.startswith("| ")]
    body = lines[2:]
    assert len(body) == len(FAULTS)
    excused = sum(line.count("– [") for line in body)
    assert excused == sum(len(server.lacks) for server in SERVERS.values())
    assert (
        sum(line.count("not measured") for line in body) == len(FAULTS) * len(SERVERS) - excused - 1
    )


@pytest.mark.parametrize(
    ("p99_ns", "p50_ns", "calm_ns", "enough"),
    [
        (200, 90, 100, True),
        # Not twice.
        (190, 90, 100, False),
        # Twice and more, but the spans' own spread is as large.
        (300, 20, 120, False),
        (330, 20, 120, True),
    ],
)
def test_a_fault_is_large_enough_when_nothing_else_can_be_the_top_cause(
    p99_ns: float, p50_ns: float, calm_ns: float, enough: bool
) -> None:
    assert Effect(p99_ns, p50_ns, calm_ns).enough is enough


def test_a_larger_quota_fault_grants_less() -> None:
    granted = []
    for size in SIZES:
        _, period_us, _, quota_us = quota(0.1, size)
        assert 1_000 <= quota_us < period_us <= 1_000_000
        granted.append(quota_us / period_us)
    assert granted == sorted(set(granted), reverse=True)


def test_every_fault_that_has_sizes_is_planted_larger_by_a_larger_size() -> None:
    for kind in SERVERS.values():
        for fault in set(FAULTS) - set(kind.lacks) - set(kind.inside) - {"two", "lock", "quota"}:
            sizes = {command(fault, size) for size in SIZES} if fault != "none" else {()}
            assert len(sizes) == (1 if fault in ONE_SIZE else len(SIZES)), (kind, fault)


def test_the_page_says_which_faults_were_too_small_and_counts_them_all() -> None:
    small = judged("hog", queue=80_000, runqueue=10_000) | {"size": 16, "enough": False}
    large = judged("hog", runqueue=80_000) | {"size": 2, "enough": True}
    cells = {"redis:hog": small, "nginx:hog": large}
    top, predicted = table.bars(cells)
    assert (top.figure, top.held) == ("1 of 2 (50 %)", False)
    assert "large enough to tell, 1 of 1" in top.note
    assert "large enough to tell, 1 of 1" in predicted.note
    figures = dict(table.sections(cells))["Figures"]
    assert "| redis:hog | (16) |" in figures and "| nginx:hog | 2 |" in figures
