"""The grid: monotone, exact to 0.1 %, mergeable, and the same in SQL as in Python."""

from __future__ import annotations

import duckdb
import ibis
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some
from tailscope.engines.grid import Distribution, bin_of, bins_of, lower_edge, middle

LONGEST = 1 << 55
lengths = some.integers(0, LONGEST)
samples = some.lists(some.tuples(some.integers(0, 10**10), some.integers(1, 5)), min_size=1)


def of(sample: list[tuple[int, int]]) -> Distribution:
    values, weights = zip(*sample, strict=True)
    return Distribution.of(bins_of(np.array(values)), np.array(weights, dtype=float))


@given(lengths, lengths)
def test_a_longer_time_never_has_a_smaller_bin(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert bins_of(np.array(low)) <= bins_of(np.array(high))


@given(lengths)
def test_a_bin_holds_its_value_and_its_middle_is_within_a_twentieth_of_a_percent(
    value: int,
) -> None:
    number = int(bins_of(np.array(value)))
    low, next_low = int(lower_edge(number)), int(lower_edge(number + 1))
    assert low <= value < next_low
    assert abs(float(middle(number)) - value) <= value * 0.0005
    assert next_low - low <= max(1, low / 1000)


def test_every_bin_is_its_edges_bin_and_none_is_left_out() -> None:
    numbers = np.arange(46 * 1024)
    assert np.array_equal(bins_of(lower_edge(numbers)), numbers)


def test_sql_and_python_agree_also_beside_powers_of_two() -> None:
    around = [(1 << power) + step for power in range(0, 55) for step in (-2, -1, 0, 1, 2)]
    random = np.random.default_rng(5).integers(0, LONGEST, 2_000) >> np.arange(2_000) % 50
    values = np.unique(np.concatenate([np.array(around), random, [0, -7]]))
    table = ibis.table({"value": "int64"}, name="numbers")
    query = str(ibis.to_sql(table.select("value", bin=bin_of(table.value)), dialect="duckdb"))
    with duckdb.connect() as engine:
        engine.register("numbers", {"value": values})
        found = engine.execute(query).fetchnumpy()
    assert np.array_equal(found["bin"], bins_of(found["value"]))


@given(samples, samples)
def test_merging_is_counting_all_at_once(one: list, other: list) -> None:
    merged, whole = of(one).merge(of(other)), of(one + other)
    assert np.array_equal(merged.bins, whole.bins)
    assert np.allclose(merged.weights, whole.weights)


@given(samples, samples)
def test_what_is_taken_out_again_was_never_there(one: list, other: list) -> None:
    back = of(one).merge(of(other)).merge(of(other), sign=-1.0)
    assert np.array_equal(back.bins, of(one).bins)


@settings(max_examples=200)
@given(samples, some.floats(0.01, 0.999))
def test_a_quantile_is_that_of_the_sorted_values(sample: list, quantile: float) -> None:
    repeated = np.sort(np.concatenate([np.full(weight, value) for value, weight in sample]))
    exact = repeated[int(np.ceil(quantile * len(repeated) * (1 - 1e-12))) - 1]
    assert abs(of(sample).value_at(quantile) - exact) <= 0.0005 * exact
