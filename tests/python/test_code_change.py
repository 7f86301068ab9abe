"""Functions that changed between two recordings, from samples with known truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tailscope.quantity import Interval
from tailscope.statistics.code import FunctionDifference, Side
from tailscope.statistics.code_change import (
    FunctionChange,
    by_file_name,
    functions,
    negative,
)
from tailscope.statistics.slow_and_usual import LONGEST, Group, Mean
from test_code import Row, samples, stack

STACKS = {
    1: stack("p:same", "p:main"),
    2: stack("p:slower", "p:main"),
    3: stack("p:faster", "p:main"),
    4: stack("c:memmove", "p:slower", "p:main"),
}
#: Slow spans of each recording.
SPANS = 200


def changed(base: list[Row], new: list[Row], seed: int = 3) -> tuple[FunctionChange, ...]:
    """The functions that are named, where spans have these samples."""
    rng = np.random.default_rng(seed)
    sides = [Side.of(samples(rows, STACKS), SPANS, rng) for rows in (base, new)]
    groups = []
    for rows in (base, new):
        mean = sum(ns for _, _, ns, _ in rows) / SPANS
        groups.append(Group(0, LONGEST, SPANS, {"running": Mean(mean, np.full(1000, mean))}))
    return functions("running", sides, groups, 1_000_000.0, rng)


def spend(number: int, ns: int, share: float = 1.0) -> list[Row]:
    """Samples of a stack in some part of the spans."""
    return [(row, "running", ns, number) for row in range(round(share * SPANS))]


def test_what_grew_and_what_fell_are_named_with_the_larger_change_first() -> None:
    base = spend(1, 1_000_000) + spend(3, 3_000_000)
    new = spend(1, 1_000_000) + spend(2, 1_000_000)
    fell, grew = changed(base, new)
    assert (fell.function, fell.base_ns, fell.new_ns) == ("faster", 3_000_000.0, 0.0)
    assert fell.change.ns == pytest.approx(-3_000_000) and fell.change.hi < 0
    assert (grew.function, grew.base_ns, grew.new_ns) == ("slower", 0.0, 1_000_000.0)
    assert grew.change.lo > 0 and grew.callers == ("main",)


def test_what_a_function_called_is_in_its_time_with_calls_and_not_in_its_own() -> None:
    base = spend(1, 1_000_000)
    new = spend(1, 1_000_000) + spend(2, 2_000_000) + spend(4, 1_000_000)
    grew = {one.function: one for one in changed(base, new)}
    assert grew["slower"].change.ns == pytest.approx(2_000_000)
    assert grew["slower"].with_calls
    assert grew["slower"].with_calls.ns == pytest.approx(3_000_000)
    assert grew["memmove"].with_calls
    assert grew["memmove"].with_calls.ns == pytest.approx(1_000_000)
    fell = {one.function: one for one in changed(new, base)}
    assert fell["slower"].with_calls
    assert fell["slower"].with_calls.ns == pytest.approx(-3_000_000)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_named_where_nothing_changed(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def alike() -> list[Row]:
        numbers = rng.integers(1, 4, SPANS)
        return [(row, "running", 1_000_000, int(number)) for row, number in enumerate(numbers)]

    assert changed(alike(), alike(), seed) == ()


def test_files_are_matched_by_their_names() -> None:
    moved = by_file_name(samples(spend(2, 1), STACKS))
    assert [frame.module for frame in moved.stacks[4].frames] == ["libc.so.6", "server", "server"]
    assert moved.stacks[4].frames[0].function == "memmove" and moved.stacks[4].whole


TIMES = st.floats(-1e12, 1e12)
INTERVALS = st.lists(TIMES, min_size=3, max_size=3).map(
    lambda ends: Interval(sorted(ends)[1], min(ends), max(ends))
)


@given(INTERVALS, st.none() | INTERVALS)
def test_a_decline_is_the_growth_from_new_to_base(
    difference: Interval, with_calls: Interval | None
) -> None:
    one = FunctionDifference("f", "m", ("main",), "", 5.0, 2.0, difference, 7, with_calls)
    grew, fell = FunctionChange.growth(one), FunctionChange.decline(one)
    assert (grew.base_ns, grew.new_ns) == (fell.new_ns, fell.base_ns) == (2.0, 5.0)
    assert grew.change == difference and negative(fell.change) == difference
    assert fell.change.lo <= fell.change.ns <= fell.change.hi
    assert (fell.with_calls is None) == (with_calls is None)
