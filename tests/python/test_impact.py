"""Turning points and VarMRI's impact value."""

from __future__ import annotations

import numpy as np
from tailscope.grid import Distribution, bins_of
from tailscope.impact import high_from, impact, turning_points


def of(values: np.ndarray, weights: np.ndarray | None = None) -> Distribution:
    weights = np.ones(len(values)) if weights is None else weights
    return Distribution.of(bins_of(values), weights)


def test_a_cause_that_one_span_in_fifty_has_turns_where_it_begins() -> None:
    values = of(np.concatenate([np.zeros(980), np.full(20, 900_000)]))
    assert np.any(np.abs(turning_points(values) - 0.98) < 0.0015)
    assert abs((high_from(values, 0.99) or 0) - 900_000) < 900


def test_two_slopes_turn_once_between_them() -> None:
    values = of(np.concatenate([np.arange(9_000), 9_000 + np.arange(1_000) * 1_000]))
    found = turning_points(values)
    assert np.any(np.abs(found - 0.9) < 0.01)
    assert not np.any((found > 0.05) & (found < 0.88))


def test_a_straight_cdf_never_turns() -> None:
    assert len(turning_points(of(np.arange(10_000) * 50 + 100_000))) == 0


def test_having_a_cause_that_is_rarer_than_the_target_is_much() -> None:
    values = of(np.concatenate([np.zeros(9_990), np.full(10, 5_000)]))
    high = high_from(values, 0.99)
    assert high is not None
    assert 0 < high <= 5_000


def test_a_cause_that_all_spans_have_alike_has_no_high() -> None:
    assert high_from(of(np.full(100, 700)), 0.99) is None


def test_impact_is_the_relative_fall_without_the_high_spans() -> None:
    walls = of(np.concatenate([np.full(980, 1_000), np.full(20, 2_000)]))
    high = of(np.full(20, 2_000))
    assert impact(walls, high, 0.99) == 0.5
    assert impact(walls, walls, 0.99) is None
