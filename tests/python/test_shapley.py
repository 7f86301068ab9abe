"""Fair shares: by hand, by their axioms, and against the engine's own counterfactuals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import BUSY, World, generate
from hypothesis import given, settings
from hypothesis import strategies as some
from tailscope.engines import measure
from tailscope.engines.connect import connect
from tailscope.engines.draw import sample
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.overview import look_over
from tailscope.engines.sample import Sample
from tailscope.engines.spans import spans_named
from tailscope.engines.timed import Timed
from tailscope.statistics import shapley
from tailscope.statistics.explanation import Cause, Explanation
from tailscope.statistics.fix import Fix
from tailscope.statistics.fixed_walls import fixed


def cause(explanation: Explanation, name: str) -> Cause:
    return next(found for found in explanation.causes if found.name == name)


def test_shares_of_a_game_by_hand() -> None:
    # Worth of {}, {a}, {b}, {a, b}: a alone 2, b alone 4, both 10. a: (2 + 6) / 2, b: (4 + 8) / 2.
    assert shapley.divided(np.array([0, 2, 4, 10.0]), 2) == [4.0, 6.0]
    # Three players of whom any two win: a third each.
    majority = np.array([0, 0, 0, 1, 0, 1, 1, 1.0])
    assert shapley.divided(majority, 3) == pytest.approx([1 / 3] * 3)


@given(some.integers(0, 2**32), some.integers(1, 6))
def test_shares_add_up_and_a_player_without_effect_gets_nothing(seed: int, count: int) -> None:
    worth = np.random.default_rng(seed).random(1 << count)
    worth[0] = 0.0
    assert sum(shapley.divided(worth, count)) == pytest.approx(worth[-1])
    idle = np.concatenate([worth, worth])
    assert shapley.divided(idle, count + 1)[-1] == pytest.approx(0)


def test_two_causes_that_hide_each_other_share_what_both_are_worth(make: Make) -> None:
    kind = np.arange(1000) % 50
    lock, io = kind == 10, kind == 30
    ledger = make(
        wall_ns=np.where(lock | io, 1_000_000, 100_000),
        lock_ns=np.where(lock, 900_000, 0),
        io_ns=np.where(io, 900_000, 0),
    )
    found = tailscope.open(ledger).explain("p99")
    assert cause(found, "lock").saving.ns == cause(found, "io").saving.ns == 0
    assert cause(found, "lock").fair_ns == pytest.approx(450_000, rel=0.001)
    assert cause(found, "io").fair_ns == pytest.approx(450_000, rel=0.001)


@settings(max_examples=40, deadline=None)
@given(some.integers(0, 2**32), some.integers(1, 4), some.floats(0.6, 0.995))
def test_each_subset_is_the_percentile_of_all_rows_without_it(
    seed: int, count: int, quantile: float
) -> None:
    rng = np.random.default_rng(seed)
    values = [np.where(rng.random(500) < 0.2, rng.integers(0, 10**6, 500), 0) for _ in range(count)]
    wall = rng.integers(1_000, 100_000, 500) + sum(values)
    weight = rng.random(500) + 0.5
    found = shapley.percentiles(wall, weight, values, quantile)
    for subset in range(1 << count):
        left = wall - sum(v for i, v in enumerate(values) if subset >> i & 1)
        assert found[subset] == Distribution.of(bins_of(left), weight).value_at(quantile)


def test_shares_sum_to_the_saving_that_the_engine_finds_for_all_at_once(tmp_path: Path) -> None:
    world = World(60_000, seconds=60, plants=BUSY, seed=4, keep=0.3)
    ledger = tailscope.open(generate(tmp_path / "ledger", world))
    found = ledger.explain("p99")
    shares = found.shares
    assert shares is not None
    assert not shares.is_sample
    assert len(shares.shares) == shapley.MOST
    assert sum(shares.shares.values()) == pytest.approx(shares.saving_ns)
    limits = {one.name: int(one.median_ns) for one in found.causes if one.name in shares.shares}
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        spans = spans_named(engine, table, overview, ledger, found.span.name)
        walls = Timed.of(measure.walls(spans), spans.blocks)
        without = fixed(spans, walls, Fix(limits)).distribution()
    assert shares.saving_ns == pytest.approx(found.at_target.ns - without.value_at(0.99))


def test_a_sample_weighs_what_all_rows_weigh_and_shares_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(100_000, seconds=60, plants=BUSY, seed=6)
    ledger = tailscope.open(generate(tmp_path / "ledger", world))
    whole = ledger.explain("p99")
    monkeypatch.setattr("tailscope.engines.draw.QUOTA", (4_000, 8_000, 500))
    part, again = ledger.explain("p99", seed=3), ledger.explain("p99", seed=3)
    assert part.shares is not None and whole.shares is not None
    assert part.shares.is_sample
    assert 11_000 < part.shares.rows < 14_000
    assert part.shares.saving_ns == pytest.approx(whole.shares.saving_ns, rel=0.1)
    first = whole.causes[0].name
    assert part.shares.shares[first] == pytest.approx(whole.shares.shares[first], rel=0.15)
    assert part.shares == again.shares
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        spans = spans_named(engine, table, overview, ledger, whole.span.name)
        drawn = sample(spans, whole.curves[""], 0.99, seed=1)
        other = sample(spans, whole.curves[""], 0.99, seed=2)
    assert drawn.weight.sum() == pytest.approx(whole.span.spans)
    slow = drawn.wall >= whole.at_target.ns
    assert drawn.weight[slow].sum() == pytest.approx(0.01 * whole.span.spans, rel=0.02)
    assert drawn.weight @ drawn.wall == pytest.approx(other.weight @ other.wall, rel=0.04)
    assert len(np.intersect1d(drawn.wall, other.wall)) < 0.9 * len(drawn.wall)


def test_causes_that_are_hardly_ever_known_together_do_not_share(make: Make) -> None:
    wall = np.arange(100, 1_100)
    known = {"lock": np.arange(1000) % 2 == 0, "io": np.arange(1000) % 2 == 1}
    values = {"lock": np.full(1000, 9), "io": np.full(1000, 9), "irq": np.arange(1000) % 90}
    drawn = Sample(wall, np.ones(1000), values, known, 1000)
    found = shapley.shapley(drawn, dict.fromkeys(values, 0), ["lock", "io", "irq"], 0.9)
    assert found is not None
    assert set(found.shares) in ({"lock", "irq"}, {"io", "irq"})
    assert found.rows == 500
