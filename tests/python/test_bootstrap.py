"""The block bootstrap: exact quantiles of each draw, and the memory of bursts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as some
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.timed import Counts, Timed
from tailscope.statistics import bootstrap


def counts(seed: int, blocks: int, rows: int) -> Counts:
    rng = np.random.default_rng(seed)
    values = (rng.lognormal(11, 1, rows)).astype(np.int64)
    return Counts(rng.integers(0, blocks, rows), bins_of(values), rng.random(rows) + 0.5)


@settings(max_examples=30, deadline=None)
@given(some.integers(0, 1000), some.integers(1, 12), some.integers(1, 400), some.floats(0.5, 0.999))
def test_the_two_steps_find_the_quantile_of_all_bins(
    seed: int, blocks: int, rows: int, quantile: float
) -> None:
    counted = counts(seed, blocks, rows)
    draws = bootstrap.draw(blocks, 1, seed, replicates=5).counts
    found = bootstrap.quantiles(draws, Timed.of(counted, blocks), quantile)
    for drawn, value in zip(draws, found, strict=True):
        weights = counted.weight * drawn[counted.block]
        if weights.sum() > 0:
            held = Distribution.of(counted.bin[weights > 0], weights[weights > 0])
            assert value == held.value_at(quantile)


def test_every_block_drawn_once_is_the_recording_itself() -> None:
    timed = Timed.of(counts(1, 10, 5_000), 10)
    found = bootstrap.quantiles(np.ones((1, 10)), timed, 0.99)
    assert found[0] == timed.distribution().value_at(0.99)


def test_moving_spans_is_counting_them_elsewhere() -> None:
    before, after = counts(1, 10, 3_000), counts(2, 10, 3_000)
    after = Counts(before.block, after.bin, before.weight)
    some = np.arange(3_000) % 3 == 0
    gone = Counts(before.block[some], before.bin[some], before.weight[some])
    come = Counts(before.block[some], after.bin[some], before.weight[some])
    moved = Timed.of(before, 10).moved(gone, come).distribution()
    bins = np.where(some, after.bin, before.bin)
    expected = Distribution.of(bins, before.weight)
    assert np.array_equal(moved.bins, expected.bins)
    assert np.allclose(moved.weights, expected.weights)


def test_the_same_seed_draws_the_same_blocks() -> None:
    assert np.array_equal(bootstrap.draw(50, 2, 7).counts, bootstrap.draw(50, 2, 7).counts)
    assert not np.array_equal(bootstrap.draw(50, 2, 7).counts, bootstrap.draw(50, 2, 8).counts)


def test_independent_blocks_have_no_memory_and_bursts_have_theirs() -> None:
    noise = np.random.default_rng(2).standard_normal(200)
    assert bootstrap.memory(noise) <= 2
    bursts = np.convolve(noise, np.ones(10), mode="same")
    assert bootstrap.memory(bursts) >= 6
    assert bootstrap.memory(np.zeros(200)) == 1


def test_few_runs_make_a_wider_interval() -> None:
    replicates = np.linspace(900, 1100, 1001)
    many = bootstrap.interval(1000.0, replicates, bootstrap.draw(200, 1, 1))
    few = bootstrap.interval(1000.0, replicates, bootstrap.draw(200, 10, 1))
    assert few.lo < many.lo < 1000 < many.hi < few.hi


def test_the_next_recording_lies_in_its_own_interval_and_not_so_often_in_the_estimates() -> None:
    rng = np.random.default_rng(11)

    def recorded() -> Timed:
        values = rng.lognormal(11, 1, 4_000).astype(np.int64)
        return Timed.of(Counts(rng.integers(0, 100, 4_000), bins_of(values), np.ones(4_000)), 100)

    inside, inside_next = 0, 0
    for seed in range(200):
        draws = bootstrap.draw(100, 1, seed, replicates=300)
        found, replicates = bootstrap.interval_of(recorded(), draws, 0.99)
        wider = bootstrap.again(found.ns, replicates, draws)
        came = recorded().distribution().value_at(0.99)
        inside += found.lo <= came <= found.hi
        inside_next += wider.lo <= came <= wider.hi
    assert 0.91 <= inside_next / 200 <= 0.99
    assert inside / 200 <= 0.9


def test_what_a_cause_hid_may_last_longer_than_its_bursts() -> None:
    # One span in twenty is struck, at random; all spans of ten blocks in a row may be slower by
    # more than half. Without the strikes p99 is of these.
    blocks, rows = 200, 6_000

    def recorded() -> tuple[Timed, Timed]:
        block = np.sort(rng.integers(0, blocks, rows))
        slow = np.repeat(rng.random(blocks // 10) < 0.15, 10)[block]
        plain = (rng.lognormal(11, 0.2, rows) * np.where(slow, 1.6, 1.0)).astype(np.int64)
        strikes = rng.integers(200_000, 400_000, rows)
        longer = plain + np.where(rng.random(rows) < 0.05, strikes, 0)
        walls = (
            Timed.of(Counts(block, bins_of(w), np.ones(rows)), blocks) for w in (longer, plain)
        )
        return tuple(walls)

    held = [0, 0]
    for seed in range(100):
        rng = np.random.default_rng(seed)
        struck, plain = recorded()
        tail = struck.distribution().bin_at(0.99)
        memory = bootstrap.memory(bootstrap.surplus(struck, tail))
        before = bootstrap.draw(blocks, memory, seed, replicates=300)
        draws = bootstrap.redrawn(before, plain, 0.99)
        came = recorded()[1].distribution().value_at(0.99)
        for which, one in enumerate((before, draws)):
            found, replicates = bootstrap.interval_of(plain, one, 0.99)
            wider = bootstrap.again(found.ns, replicates, one)
            held[which] += wider.lo <= came <= wider.hi
    assert held[0] <= 83 and held[1] >= 87, held
    # What has no longer memory keeps its draws.
    draws = bootstrap.draw(blocks, 5, 1)
    assert bootstrap.redrawn(draws, Timed.of(counts(1, blocks, rows), blocks), 0.99) is draws
