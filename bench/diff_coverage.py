"""Do the 95 % intervals of `diff` hold the truth 95 times in 100, and how often would CI cry wolf?

Pairs of short synthetic recordings are drawn from each world of `explain_coverage`, where nothing
changes, and from the same world with a slower cause. Prints a line a world: how often the interval
of p99's change held the truth (no change; and the change between all recordings together), and how
often `--fail-over 5%` would have failed without a reason.

    .venv/bin/python bench/diff_coverage.py --pairs 200
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from explain_coverage import QUANTILE, QUIET, WORLDS, World, counted
from explain_synthetic import simulate
from harness import Result, table
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
    """Prints a line for each world, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    chosen = parser.parse_args()
    result = Result("diff_coverage", "Whether diff's 95 % intervals hold, and false alarms")
    rows = []
    for name, plant in WORLDS.items():
        world = World(chosen.rows, chosen.seconds, plants=(*QUIET, plant))
        slower = replace(world, plants=(*QUIET, replace(plant, mean_ns=1.3 * plant.mean_ns)))
        found = covered(world, slower, chosen.pairs)
        result.figures[name] = found
        rows.append((name, *(f"{share:.0%}" for share in found.values())))
        print(" | ".join(rows[-1]), flush=True)
    pairs = f"{chosen.pairs} pairs of recordings of {chosen.rows:,} spans in {chosen.seconds:g} s"
    head = ("world", "no change", "a change", "false alarms")
    result.say(f"{pairs} from each world", table(head, rows))
    held = [found[what] for found in result.figures.values() for what in ("no change", "a change")]
    alarms = [found["false alarms"] for found in result.figures.values()]
    result.summary = (
        f"95 % intervals hold the truth in {100 * min(held):.0f} to {100 * max(held):.0f} % of the "
        f"pairs; false alarms in {100 * min(alarms):.0f} to {100 * max(alarms):.0f} %"
    )
    if not chosen.no_result:
        result.write()


def covered(world: World, slower: World, pairs: int) -> dict[str, float]:
    """The shares of pairs that are held without and with a change, and of false alarms."""
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
    return {"no change": float(held), "a change": float(told), "false alarms": float(alarms)}


if __name__ == "__main__":
    main()
