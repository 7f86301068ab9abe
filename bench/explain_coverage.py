"""Do the 95 % intervals of `explain` hold the truth 95 times in 100, and is the saving right?

Many short synthetic recordings are drawn from each world; the truth is the percentile of all of
them together, with and without the planted cause. Prints one line a world: how often each interval
held its truth, how wide it was, how far the estimates were off, and for comparison what resampling
rows one by one (no blocks) would have given.

    python bench/explain_coverage.py --recordings 300
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from explain_synthetic import QUIET, START_NS, Columns, Plant, World, simulate
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.spans import block_power
from tailscope.engines.timed import Counts, Timed
from tailscope.statistics import bootstrap

QUANTILE = 0.99
WORLDS = {
    "independent": Plant("runqueue", 0.03, 900_000, 3_000_000),
    "bursts of 20 ms": Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.1, burst_s=0.02),
    "bursts of 0.4 s": Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.1, burst_s=0.4),
    "bursts of 3 s": Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.1, burst_s=3.0),
    "bursts of 10 s": Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.1, burst_s=10.0),
    "tail barely reached": Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.04, burst_s=0.4),
}


def counted(columns: Columns, power: int, blocks: int, without: str | None = None) -> Timed:
    """What the engine would count, for all spans or with a cause taken away."""
    wall = columns["wall_ns"] - (columns[f"{without}_ns"] if without else 0)
    block = (columns["start_ns"] - START_NS) >> power
    return Timed.of(Counts(block, bins_of(wall), columns["weight"]), blocks)


def estimate(
    before: Timed, after: Timed, memory: int, blocks: int
) -> tuple[bootstrap.Interval, bootstrap.Interval, bootstrap.Interval]:
    """Target, prediction and saving with their intervals."""
    draws = bootstrap.draw(blocks, memory, seed=1)
    target, first = bootstrap.interval_of(before, draws, QUANTILE)
    predicted, second = bootstrap.interval_of(after, draws, QUANTILE)
    saving = bootstrap.interval(target.ns - predicted.ns, first - second, draws)
    return target, predicted, saving


def shuffled(columns: Columns, order: np.ndarray) -> Columns:
    """The same spans at each other's times: what a bootstrap of single rows would see."""
    return columns | {"start_ns": columns["start_ns"][order]}


def main() -> None:
    """Print a table of coverages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=int, default=300)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    chosen = parser.parse_args()
    print(f"{chosen.recordings} recordings of {chosen.rows:,} spans in {chosen.seconds:g} s each")
    print(
        f"{'world':<20} {'p99':>6} {'without':>8} {'saving':>7} {'width':>7} {'error':>7} "
        f"{'rows alone':>10} {'memory':>6}"
    )
    for name, plant in WORLDS.items():
        world = World(chosen.rows, chosen.seconds, plants=(*QUIET, plant))
        print(line(name, world, plant.cause, chosen.recordings), flush=True)


def line(name: str, world: World, cause: str, recordings: int) -> str:
    """One world's coverage of target, prediction, saving; the saving's width and error."""
    all_before = Distribution.of(np.zeros(0), np.zeros(0))
    all_after = all_before
    seen = []
    rng = np.random.default_rng(0)
    power = block_power([int(world.seconds * 1e9)])
    blocks = (int(world.seconds * 1e9) >> power) + 1
    for seed in range(recordings):
        columns = simulate(replace(world, seed=seed + 10))
        before = counted(columns, power, blocks)
        after = counted(columns, power, blocks, cause)
        all_before = all_before.merge(before.distribution())
        all_after = all_after.merge(after.distribution())
        tail = before.distribution().bin_at(QUANTILE)
        memory = bootstrap.memory(bootstrap.surplus(before, tail))
        mixed = shuffled(columns, rng.permutation(len(columns["start_ns"])))
        alone = estimate(
            counted(mixed, power, blocks), counted(mixed, power, blocks, cause), 1, blocks
        )
        seen.append((estimate(before, after, memory, blocks), alone[2], memory))
    truths = [all_before.value_at(QUANTILE), all_after.value_at(QUANTILE)]
    truths.append(truths[0] - truths[1])
    held = [
        np.mean([found[i].lo <= truth <= found[i].hi for found, _, _ in seen])
        for i, truth in enumerate(truths)
    ]
    alone_held = np.mean([alone.lo <= truths[2] <= alone.hi for _, alone, _ in seen])
    width = np.median([(found[2].hi - found[2].lo) / truths[2] for found, _, _ in seen])
    error = np.median([abs(found[2].ns / truths[2] - 1) for found, _, _ in seen])
    return (
        f"{name:<20} {held[0]:6.1%} {held[1]:8.1%} {held[2]:7.1%} {width:7.1%} {error:7.2%} "
        f"{alone_held:10.1%} {np.mean([memory for *_, memory in seen]):6.1f}"
    )


if __name__ == "__main__":
    main()
