"""Turning points and VarMRI's impact value."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.value_counts import Ranked
from tailscope.errors import TailscopeError
from tailscope.statistics.impact import impact
from tailscope.statistics.threshold import Lines, high_from, ranges_of, turning_points
from tailscope.statistics.varmri import VarMRI

METHOD = VarMRI()
P95, P99 = Fraction(95, 100), Fraction(99, 100)


def of(values: np.ndarray, weights: np.ndarray | None = None) -> Distribution:
    weights = np.ones(len(values)) if weights is None else weights
    return Distribution.of(bins_of(values), weights)


def ranked(values: np.ndarray) -> Ranked:
    return Ranked.of(values, np.ones(len(values)))


def points(values: np.ndarray, method: VarMRI = METHOD) -> np.ndarray:
    return np.array([float(point) for point in turning_points(ranked(values), method)])


def test_a_cause_that_one_span_in_fifty_has_turns_where_it_begins() -> None:
    values = np.concatenate([np.zeros(980), np.full(20, 900_000)])
    assert np.any(np.abs(points(values) - 0.98) < 0.0025)
    assert high_from(ranked(values), P99, METHOD) == 900_000


def test_two_slopes_turn_once_between_them() -> None:
    found = points(np.concatenate([np.arange(9_000), 9_000 + np.arange(1_000) * 1_000]))
    assert np.any(np.abs(found - 0.9) < 0.01)
    assert not np.any((found > 0.05) & (found < 0.88))


def test_a_straight_cdf_never_turns() -> None:
    assert len(points(np.arange(10_000) * 50 + 100_000)) == 0


def test_having_a_cause_that_is_rarer_than_the_target_is_much() -> None:
    values = ranked(np.concatenate([np.zeros(9_990), np.full(10, 5_000)]))
    assert high_from(values, P99, METHOD) == 5_000


def test_a_cause_that_is_not_rare_and_never_bends_has_no_high() -> None:
    assert high_from(ranked(np.arange(10_000)), P99, METHOD) is None


def test_a_narrow_cdf_bends_where_a_wide_one_does() -> None:
    bent = np.concatenate([np.arange(9_000), 9_000 + np.arange(1_000) * 100])
    assert points(bent).tolist() == points(bent + 10_000_000_000).tolist()


def test_a_cause_that_all_spans_have_alike_has_no_high() -> None:
    assert high_from(ranked(np.full(100, 700)), P99, METHOD) is None


def test_impact_is_the_relative_fall_without_the_high_spans() -> None:
    walls = of(np.concatenate([np.full(980, 1_000), np.full(20, 2_000)]))
    high = of(np.full(20, 2_000))
    assert impact(walls, high, 0.99) == 0.5
    assert impact(walls, walls, 0.99) is None


def test_r2_of_three_points_by_hand() -> None:
    # (0, 0), (1, 1) and (2, 1): means 1 and 2/3, sums of squares 2, 1 and 2/3 around them.
    points = Lines(*(np.array([one]) for one in (3.0, 1.0, 2 / 3, 2.0, 1.0, 2 / 3)))
    assert points.slope[0] == pytest.approx(1 / 2)
    # Residuals -1/6, 1/3, -1/6: 1/6 of squares, of 2/3 around the mean.
    assert points.explained(points)[0] == pytest.approx(1 - (1 / 6) / (2 / 3))


def test_lines_add_up_to_the_line_of_all_points() -> None:
    values = ranked(np.random.default_rng(2).integers(0, 10**6, 1_000))
    whole, halves = ranges_of(values, 1), ranges_of(values, 2)
    both = halves[:1] + halves[1:]
    for one, other in zip(both.columns, whole.columns, strict=True):
        assert one == pytest.approx(other)


def test_ten_ranges_merge_into_the_two_lines_they_lie_on() -> None:
    half = np.concatenate([np.zeros(5_000), np.arange(1, 5_001) * 1_000])
    assert points(half, VarMRI(ranges=10)).tolist() == [0.5]
    third = np.concatenate([np.arange(7_000), 7_000 + np.arange(1, 3_001) * 2_000])
    assert points(third, VarMRI(ranges=10)).tolist() == [0.7]


def test_a_looser_fit_forgives_a_slight_bend() -> None:
    bent = np.concatenate([np.arange(5_000), 5_000 + np.arange(1, 5_001) * 2])
    assert len(points(bent, VarMRI(fit=0.999))) > 0
    assert len(points(bent, VarMRI(fit=0.7))) == 0


def test_of_several_turning_points_the_one_nearest_below_the_target_counts() -> None:
    values = ranked(np.concatenate([np.zeros(900), np.full(80, 10_000), np.full(20, 900_000)]))
    assert high_from(values, P95, METHOD) == 10_000
    assert high_from(values, P99, METHOD) == 900_000


@pytest.mark.parametrize(
    "wrong", [{"ranges": 1}, {"fit": 1.0}, {"proportion": -0.1}, {"proportional": "x"}]
)
def test_numbers_that_make_no_method_are_refused(wrong: dict) -> None:
    with pytest.raises(TailscopeError):
        VarMRI(**wrong)
