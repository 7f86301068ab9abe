"""Turning points and VarMRI's impact value."""

from __future__ import annotations

import numpy as np
import pytest
from tailscope.errors import TailscopeError
from tailscope.grid import Distribution, bins_of
from tailscope.impact import impact
from tailscope.threshold import Lines, high_from, turning_points
from tailscope.varmri import VarMRI

METHOD = VarMRI()


def of(values: np.ndarray, weights: np.ndarray | None = None) -> Distribution:
    weights = np.ones(len(values)) if weights is None else weights
    return Distribution.of(bins_of(values), weights)


def test_a_cause_that_one_span_in_fifty_has_turns_where_it_begins() -> None:
    values = of(np.concatenate([np.zeros(980), np.full(20, 900_000)]))
    assert np.any(np.abs(turning_points(values, METHOD) - 0.98) < 0.0015)
    assert abs((high_from(values, 0.99, METHOD) or 0) - 900_000) < 900


def test_two_slopes_turn_once_between_them() -> None:
    values = of(np.concatenate([np.arange(9_000), 9_000 + np.arange(1_000) * 1_000]))
    found = turning_points(values, METHOD)
    assert np.any(np.abs(found - 0.9) < 0.01)
    assert not np.any((found > 0.05) & (found < 0.88))


def test_a_straight_cdf_never_turns() -> None:
    assert len(turning_points(of(np.arange(10_000) * 50 + 100_000), METHOD)) == 0


def test_having_a_cause_that_is_rarer_than_the_target_is_much() -> None:
    values = of(np.concatenate([np.zeros(9_990), np.full(10, 5_000)]))
    high = high_from(values, 0.99, METHOD)
    assert high is not None
    assert 0 < high <= 5_000


def test_a_cause_that_all_spans_have_alike_has_no_high() -> None:
    assert high_from(of(np.full(100, 700)), 0.99, METHOD) is None


def test_impact_is_the_relative_fall_without_the_high_spans() -> None:
    walls = of(np.concatenate([np.full(980, 1_000), np.full(20, 2_000)]))
    high = of(np.full(20, 2_000))
    assert impact(walls, high, 0.99) == 0.5
    assert impact(walls, walls, 0.99) is None


def test_r2_of_three_points_by_hand() -> None:
    x, y = np.array([0.0, 1, 2]), np.array([0.0, 1, 1])
    points = Lines(*(np.array([s.sum()]) for s in (np.ones(3), x, y, x * x, x * y, y * y)))
    slope, intercept = points.fit()
    assert (slope[0], intercept[0]) == pytest.approx((1 / 2, 1 / 6))
    # Residuals -1/6, 1/3, -1/6: 1/6 of squares, of 2/3 around the mean.
    assert points.explained(slope, intercept)[0] == pytest.approx(1 - (1 / 6) / (2 / 3))


def test_ten_ranges_merge_into_the_two_lines_they_lie_on() -> None:
    half = of(np.concatenate([np.zeros(5_000), np.arange(1, 5_001) * 1_000]))
    assert turning_points(half, VarMRI(ranges=10)).tolist() == [0.5]
    third = of(np.concatenate([np.arange(7_000), 7_000 + np.arange(1, 3_001) * 2_000]))
    assert turning_points(third, VarMRI(ranges=10)).tolist() == [0.7]


def test_a_looser_fit_forgives_a_slight_bend() -> None:
    bent = of(np.concatenate([np.arange(5_000), 5_000 + np.arange(1, 5_001) * 2]))
    assert len(turning_points(bent, VarMRI(fit=0.999))) > 0
    assert len(turning_points(bent, VarMRI(fit=0.7))) == 0


def test_of_several_turning_points_the_one_nearest_below_the_target_counts() -> None:
    values = of(np.concatenate([np.zeros(900), np.full(80, 10_000), np.full(20, 900_000)]))
    assert high_from(values, 0.95, METHOD) == pytest.approx(10_000, rel=0.001)
    assert high_from(values, 0.99, METHOD) == pytest.approx(900_000, rel=0.001)


@pytest.mark.parametrize("wrong", [{"ranges": 1}, {"fit": 1.0}, {"proportion": -0.1}])
def test_numbers_that_make_no_method_are_refused(wrong: dict) -> None:
    with pytest.raises(TailscopeError):
        VarMRI(**wrong)
