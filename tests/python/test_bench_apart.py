"""What an observer takes is told by how far the CPUs were apart, and only where that is known."""

from __future__ import annotations

from apart import FAR, NEAR, Taken, bars, cell, periods, ways


def taken(share: float, before: float, after: float) -> Taken:
    return Taken(share, 1230, before, after)


def test_an_observation_is_near_or_far_if_it_was_so_before_and_after_it() -> None:
    assert taken(0, 90, 130).where == NEAR
    assert taken(0, 590, 580).where == FAR
    assert taken(0, 90, 590).where is None


def test_medians_are_of_those_of_one_distance() -> None:
    found = [taken(1, 90, 90), taken(2, 90, 90), taken(6, 90, 90), taken(30, 590, 590)]
    assert cell(found, NEAR) == "2.00 [1.50, 4.00] % of 3"
    assert cell(found, FAR) == "30.00 [30.00, 30.00] % of 1"
    assert cell(found[:3], FAR) == "not met"
    assert ways([found[:1], found[3:]]) == "90 to 590"
    assert periods(found) == "1,230 to 1,230"


def test_a_bar_that_not_all_programs_met_is_not_held() -> None:
    still, moved = [taken(1, 90, 90)], [taken(2, 90, 90), taken(30, 590, 590)]
    near, far = bars("taken", 2, [still, moved])
    assert (near.figure, near.held) == ("1.50 %", True)
    assert (far.figure, far.held) == ("none: far for 1 of 2 programs", False)
