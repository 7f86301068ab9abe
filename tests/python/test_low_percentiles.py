"""Percentiles at and below the median: what they are held against, and storms of interrupts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tailscope
from command import Command, flat, runner
from conftest import Make
from explain_synthetic import World
from tailscope.cli import main
from tailscope.present import diff_text
from tailscope.statistics.diff import diff
from tailscope.statistics.explanation import explain
from tailscope.statistics.target import Target

SPANS = 20_000
#: What an interrupt of the storm takes in its handler, and outside of it (ns).
INSIDE, OUTSIDE = 900, 4_600


def calm(rng: np.random.Generator, spans: int = SPANS) -> dict[str, np.ndarray]:
    """Requests of 56 µs with hardly an interrupt."""
    run = 56_000 * np.exp(0.1 * rng.standard_normal(spans))
    number = rng.poisson(0.02, spans)
    return {"wall_ns": run + number * INSIDE, "irq_ns": number * INSIDE, "irq_n": number}


def storm(rng: np.random.Generator, *, regular: bool, spans: int = SPANS) -> dict[str, np.ndarray]:
    """The same requests, under interrupts at random or like a clock: some ten in each."""
    run = 56_000 * np.exp(0.1 * rng.standard_normal(spans))
    many = run / 5_600
    number = np.floor(many + rng.random(spans)) if regular else rng.poisson(many)
    wall = run + number * (INSIDE + OUTSIDE)
    return {"wall_ns": wall, "irq_ns": number * INSIDE, "irq_n": number}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture(params=[False, True], ids=["at random", "like a clock"])
def stormy(make: Make, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    rng = np.random.default_rng(3)
    return make("calm", **calm(rng)), make("storm", **storm(rng, regular=request.param))


def test_a_storm_that_strikes_every_span_is_found_with_a_baseline(
    stormy: tuple[Path, Path],
) -> None:
    base, new = (tailscope.open(path) for path in stormy)
    found = explain(new, Target(50), None, 1, compared=base)
    assert found.span.target_ns == pytest.approx(111_000, rel=0.02)
    first = found.causes[0]
    assert first.name == "irq"
    # What is saved is nearly all that was lost, and most of that is outside of the handlers.
    assert first.saving.ns == pytest.approx(55_000, rel=0.1)
    assert first.cold_ns == pytest.approx(10 * OUTSIDE, rel=0.15)
    assert first.share == pytest.approx(1, abs=0.1)
    running = next(cause for cause in found.causes if cause.name == "running")
    assert running.saving.ns < 0.2 * first.saving.ns


def test_the_growth_of_the_median_is_the_storms(stormy: tuple[Path, Path]) -> None:
    base, new = (tailscope.open(path) for path in stormy)
    (kind,) = diff(base, new, Target(50)).kinds
    change = {cause.name: cause for cause in kind.change.causes}
    assert kind.change.causes[0].name == "irq"
    assert change["irq"].carries == pytest.approx(1, abs=0.1)
    assert change["irq"].change is not None
    assert change["irq"].change.ns == pytest.approx(55_000, rel=0.1)
    # Asked for p99, it says so of the median too.
    (kind,) = diff(base, new, Target(99)).kinds
    assert kind.change.median_causes[0].name == "irq"
    told = diff_text.render(diff(base, new, Target(99)))
    assert "in p50 " in told


def test_a_storm_is_the_same_where_rows_stay_in_the_engine(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    base = tailscope.open(make("calm", **calm(rng)))
    new = tailscope.open(make("storm", **storm(rng, regular=False)))
    here = explain(new, Target(50), None, 1, compared=base).causes[0]
    monkeypatch.setattr("tailscope.engines.draw.IN_MEMORY", 1_000)
    there = explain(new, Target(50), None, 1, compared=base).causes[0]
    assert (there.name, there.saving) == (here.name, here.saving)
    assert there.cold_ns == here.cold_ns
    assert there.share == pytest.approx(here.share)


def test_slower_code_is_not_put_down_to_interrupts_that_come_as_often(make: Make) -> None:
    rng = np.random.default_rng(5)

    def requests(run_ns: float) -> dict[str, np.ndarray]:
        run = run_ns * np.exp(0.1 * rng.standard_normal(SPANS))
        number = rng.poisson(run / 20_000)
        wall = run + number * INSIDE
        return {"wall_ns": wall, "irq_ns": number * INSIDE, "irq_n": number}

    base, new = make("base", **requests(56_000)), make("new", **requests(100_000))
    found = explain(tailscope.open(new), Target(50), None, 1, compared=tailscope.open(base))
    assert found.causes[0].name == "running"
    irq = next(cause for cause in found.causes if cause.name == "irq")
    assert irq.cold_ns == 0
    (kind,) = diff(tailscope.open(base), tailscope.open(new), Target(50)).kinds
    assert kind.change.causes[0].name == "running"


def test_without_a_baseline_the_least_of_each_cause_is_the_base(make: Make, run: Command) -> None:
    lock = 30_000 + np.arange(1000) % 40 * 1_000
    ledger = make(wall_ns=100_000 + lock, lock_ns=lock)
    code, out, _ = run(ledger, "-p", "p50")
    assert code == 0
    assert "the base is the least value of each cause in any span" in flat(out)
    found = json.loads(run(ledger, "-p", "p50", "--json")[1])
    assert found["target"] == "p50"
    assert found["base"]["kind"] == "minimum"
    cause = {cause["name"]: cause for cause in found["causes"]}["lock"]
    assert cause["base_ns"] == 30_000
    assert cause["saving_ns"] == pytest.approx(19_000, rel=0.005)
    assert cause["share"] == pytest.approx(1)


def test_a_baseline_is_named_in_text_and_json(make: Make, run: Command) -> None:
    base = make("base", wall_ns=[100_000] * 1000, lock_ns=[0] * 1000)
    new = make("new", wall_ns=[160_000] * 1000, lock_ns=[60_000] * 1000)
    code, out, _ = run(new, "-p", "p25", "--baseline", base)
    assert code == 0
    assert flat(out).startswith(
        "p25 of recv..send is 160 µs, and 100 µs in the baseline; 60.1 µs of it is lock"
    )
    assert f"the base is {base}, where p25 is 100 µs" in flat(out)
    assert "what to do lock: find what wakes it" in flat(out)
    found = json.loads(run(new, "-p", "p50", "--baseline", base, "--json")[1])
    assert found["base"]["kind"] == "baseline"
    assert found["base"]["ledger"].endswith("base")
    assert found["base"]["target_ns"]["ns"] == pytest.approx(100_000, rel=0.001)


def test_a_baseline_without_these_spans_is_refused(make: Make, run: Command) -> None:
    world = World(5, seconds=1)
    base = make("base", wall_ns=[1] * 5, world=replace(world, span="get"))
    new = make("new", wall_ns=[1] * 5, world=replace(world, span="set"))
    code, _, err = run(new, "--baseline", base)
    assert code == 2
    assert "no span named 'set' to compare with; it has: get" in err


@pytest.mark.parametrize("percent", ["p1", "p10", "p50", "p75", "p99.99"])
def test_every_percentile_is_explained_and_compared(
    two_values: Path, run: Command, percent: str
) -> None:
    code, out, err = run(two_values, "-p", percent)
    assert (code, err) == (0, "")
    assert out.startswith(f"{percent} of ")
    found = diff(tailscope.open(two_values), tailscope.open(two_values), Target(percent[1:]))
    assert found.kinds[0].change.target.change.ns == 0


def test_figures_stay_within_what_the_data_can_be(make: Make) -> None:
    # Nearly all blocks are quick; a burst at the end makes all of p99.
    slow = np.arange(6_000) >= 5_935
    wall = np.where(slow, 40_000_000, 46_000) + np.arange(6_000) % 100
    lock = np.where(slow, 0, 20_000)
    network = np.where(slow, 39_990_000, 1_000)
    ledger = make(wall_ns=wall, lock_ns=lock, network_ns=network)
    found = tailscope.open(ledger).explain("p99")
    assert found.p50_ns <= found.at_target.lo <= found.at_target.ns <= found.at_target.hi
    assert found.at_target.hi <= 40_100_000
    shares = [cause.share for cause in found.causes]
    assert all(share is not None and 0 <= share <= 1 for share in shares)
    assert sum(share or 0 for share in shares) == pytest.approx(1)
    for cause in found.causes:
        assert 0 <= cause.saving.lo <= cause.saving.ns <= cause.saving.hi <= found.at_target.hi
        assert 0 <= cause.predicted.lo <= cause.predicted.ns <= cause.predicted.hi
