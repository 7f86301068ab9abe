"""Do the 95 % intervals of `diff` hold the truth 95 times in 100, and how often would CI cry wolf?

Pairs of short synthetic recordings are drawn from each world of `explain_coverage`, where nothing
changes, and from the same world with a slower cause. Prints a line a world: how often the interval
of p99's change held the truth (no change; and the change between all recordings together), and how
often `--fail-over 5%` would have failed without a reason.

    python bench/diff_coverage.py --pairs 200
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from explain_coverage import QUANTILE, QUIET, WORLDS, World, counted
from explain_synthetic import simulate
from tailscope.engines.grid import Distribution
from tailscope.engines.spans import block_power
from tailscope.engines.timed import Timed
from tailscope.quantity import Interval
from tailscope.statistics import bootstrap
from tailscope.statistics.bootstrap import interval, interval_of
from tailscope.statistics.change import wider

LIMIT = 0.05


def compared(base: Timed, new: Timed) -> tuple[Interval, Interval]:
    """The change of the percentile, in ns and relative, as `tailscope.statistics.change` has it."""
    sides = []
    for seed, walls in enumerate((base, new)):
        tail = walls.distribution().bin_at(QUANTILE)
        memory = bootstrap.memory(bootstrap.surplus(walls, tail))
        draws = bootstrap.draw(walls.blocks, memory, seed)
        sides.append((draws, *interval_of(walls, draws, QUANTILE)))
    (first, before, before_draws), (second, after, after_draws) = sides
    draws = wider(first, second)
    return (
        interval(after.ns - before.ns, after_draws - before_draws, draws),
        interval(after.ns / before.ns - 1, after_draws / before_draws - 1, draws),
    )


def main() -> None:
    """Print a table of coverages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    chosen = parser.parse_args()
    print(f"{chosen.pairs} pairs of recordings of {chosen.rows:,} spans in {chosen.seconds:g} s")
    print(f"{'world':<20} {'no change':>10} {'a change':>9} {'false alarms':>13}")
    for name, plant in WORLDS.items():
        world = World(chosen.rows, chosen.seconds, plants=(*QUIET, plant))
        slower = replace(world, plants=(*QUIET, replace(plant, mean_ns=1.3 * plant.mean_ns)))
        print(line(name, world, slower, chosen.pairs), flush=True)


def line(name: str, world: World, slower: World, pairs: int) -> str:
    """One world's coverage without and with a change, and its false alarms."""
    power = block_power([int(world.seconds * 1e9)])
    blocks = (int(world.seconds * 1e9) >> power) + 1
    nothing = Distribution.of(np.zeros(0), np.zeros(0))
    every = [nothing, nothing]
    same, changed = [], []
    for pair in range(pairs):
        seeds = 1_000 + 3 * pair + np.arange(3)
        base, again, other = (
            counted(simulate(replace(kind, seed=int(seed))), power, blocks)
            for kind, seed in zip((world, world, slower), seeds, strict=True)
        )
        same.append(compared(base, again))
        changed.append(compared(base, other)[0])
        for i, walls in enumerate((base, other)):
            every[i] = every[i].merge(walls.distribution())
    truth = every[1].value_at(QUANTILE) - every[0].value_at(QUANTILE)
    held = np.mean([found.lo <= 0 <= found.hi for found, _ in same])
    told = np.mean([found.lo <= truth <= found.hi for found in changed])
    alarms = np.mean([relative.lo > LIMIT for _, relative in same])
    return f"{name:<20} {held:>10.1%} {told:>9.1%} {alarms:>13.1%}"


if __name__ == "__main__":
    main()
