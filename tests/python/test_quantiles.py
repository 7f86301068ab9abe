"""Every quantile from bins, ranges and merges lies within 0.2 % of the exact one."""

from __future__ import annotations

import numpy as np
import tailscope
from conftest import Make
from hypothesis import given, settings
from hypothesis import strategies as some
from tailscope.engines import measure
from tailscope.engines.connect import connect
from tailscope.engines.grid import Distribution, bins_of, lower_edge
from tailscope.engines.overview import look_over
from tailscope.engines.spans import spans_named
from tailscope.engines.timed import Counts, Timed
from tailscope.statistics import fixed_walls
from tailscope.statistics.fix import Fix

BOUND = 0.002
QUANTILES = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)

#: Latencies from 0 to nine years; many are small, as most spans are.
values = some.one_of(some.integers(0, 5_000), some.integers(0, 10**9), some.integers(0, 1 << 58))
#: Latency, weight, time block, and how much of it a fix would take away (in thousandths).
spans = some.tuples(values, some.integers(1, 9), some.integers(0, 3), some.integers(0, 1_000))
samples = some.lists(spans, min_size=1, max_size=60)
#: The same up to 10 ms: the table by time and bin is dense.
short_spans = some.tuples(
    some.integers(0, 10**7), some.integers(1, 9), some.integers(0, 3), some.integers(0, 1_000)
)


def exact(wall: np.ndarray, weight: np.ndarray, quantile: float) -> int:
    """The smallest value that at least this share of the weight does not exceed."""
    order = np.argsort(wall)
    cumulated = np.cumsum(weight[order])
    place = np.searchsorted(cumulated, quantile * cumulated[-1] * (1 - 1e-12))
    return int(wall[order][min(place, len(wall) - 1)])


def check(found: Distribution, wall: np.ndarray, weight: np.ndarray, above: int = 0) -> None:
    """All quantiles that lie at or above a value."""
    for quantile in QUANTILES:
        expected = exact(wall, weight, quantile)
        if expected >= above:
            assert abs(found.value_at(quantile) - expected) <= BOUND * expected


def columns(sample: list) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    wall, weight, block, part = (np.array(column) for column in zip(*sample, strict=True))
    return wall, weight.astype(float), block, wall - wall // 1_000 * part


@given(samples)
def test_from_bins(sample: list) -> None:
    wall, weight, _, _ = columns(sample)
    check(Distribution.of(bins_of(wall), weight), wall, weight)


@given(some.lists(samples, min_size=2, max_size=6))
def test_from_merges_in_any_number(parts: list[list]) -> None:
    merged = Distribution.of(np.zeros(0), np.zeros(0))
    for part in parts:
        wall, weight, _, _ = columns(part)
        merged = merged.merge(Distribution.of(bins_of(wall), weight))
    wall, weight, _, _ = columns([span for part in parts for span in part])
    check(merged, wall, weight)


@given(samples, samples)
def test_from_what_is_left_when_a_part_is_taken_out(stays: list, goes: list) -> None:
    wall, weight, _, _ = columns(stays + goes)
    gone_wall, gone_weight, _, _ = columns(goes)
    whole = Distribution.of(bins_of(wall), weight)
    rest = whole.merge(Distribution.of(bins_of(gone_wall), gone_weight), sign=-1.0)
    wall, weight, _, _ = columns(stays)
    check(rest, wall, weight)


@settings(max_examples=60)
@given(some.lists(short_spans, min_size=1, max_size=60))
def test_from_ranges_of_time_and_of_the_tail_after_a_fix(sample: list) -> None:
    wall, weight, block, fixed = columns(sample)
    timed = Timed.of(Counts(block, bins_of(wall), weight), 4)
    check(timed.distribution(), wall, weight)
    floor = int(bins_of(exact(wall, weight, 0.5)))
    gone = Counts(block, bins_of(wall), weight)
    slow = gone.bin >= floor
    gone = Counts(block[slow], gone.bin[slow], weight[slow])
    come = Counts(block[slow], np.maximum(bins_of(fixed[slow]), floor - 1), weight[slow])
    left = timed.from_bin(floor).moved(gone, come).distribution()
    after = np.where(slow, fixed, wall)
    check(left, after, weight, above=int(lower_edge(floor)))


def test_from_the_engine_too(make: Make) -> None:
    rng = np.random.default_rng(9)
    wall = np.exp(rng.normal(11, 3, 30_000)).astype(np.int64)
    lock = (wall * rng.random(30_000)).astype(np.int64)
    weight = rng.integers(1, 6, 30_000).astype(float)
    ledger = tailscope.open(make(wall_ns=wall, lock_ns=lock, weight=weight))
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        found = spans_named(engine, table, overview, ledger, "recv..send")
        timed = Timed.of(measure.walls(found), found.blocks)
        walls = timed.distribution()
        check(walls, wall, weight)
        locks = measure.strikes(found, "lock", walls.total)
        check(locks.values, lock, weight)
        fixed = wall - np.maximum(lock - 5_000, 0)
        check(fixed_walls.fixed(found, timed, Fix({"lock": 5_000})).distribution(), fixed, weight)
