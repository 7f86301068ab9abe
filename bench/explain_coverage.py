"""Do the 95 % intervals of `explain` hold the truth 95 times in 100, and is the saving right?

Many short synthetic recordings are drawn from each world; the truth is the percentile of all of
them together, with and without the planted cause. Prints one line a world: how often each interval
held its truth, how wide it was, how far the estimates were off, and for comparison what resampling
rows one by one (no blocks) would have given.

    .venv/bin/python bench/explain_coverage.py --recordings 300
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from explain_synthetic import QUIET, START_NS, Columns, Plant, World, simulate
from harness import Result, table
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


HEAD = ("world", "p99", "without the cause", "saving", "width", "error", "rows alone", "memory")


def main() -> None:
    """Prints a line for each world, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=int, default=300)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    chosen = parser.parse_args()
    result = Result("explain_coverage", "Whether explain's 95 % intervals hold the truth")
    rows = []
    for name, plant in WORLDS.items():
        world = World(chosen.rows, chosen.seconds, plants=(*QUIET, plant))
        found = covered(world, plant.cause, chosen.recordings)
        result.figures[name] = found
        rows.append((name, *line(found)))
        print(" | ".join(rows[-1]), flush=True)
    recordings = f"{chosen.recordings} recordings of {chosen.rows:,} spans in {chosen.seconds:g} s"
    result.say(f"{recordings} from each world", table(HEAD, rows))
    held = [found["saving"] for found in result.figures.values()]
    result.summary = (
        f"95 % intervals of the saving hold the truth in {100 * min(held):.1f} to "
        f"{100 * max(held):.1f} % of the recordings"
    )
    if not chosen.no_result:
        result.write()


def line(found: dict[str, float]) -> tuple[str, ...]:
    """One world's line, without its name."""
    shares = [f"{found[what]:.1%}" for what in ("p99", "without", "saving", "width")]
    shares += [f"{found['error']:.2%}", f"{found['rows_alone']:.1%}"]
    return (*shares, f"{found['memory']:.1f}")


def covered(world: World, cause: str, recordings: int) -> dict[str, float]:
    """How often target, prediction and saving are held, and the saving's width and error.

    All are shares, except the tail's memory in blocks. "Rows alone" is the saving's interval where
    spans are resampled one by one.
    """
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
    shares = {"p99": held[0], "without": held[1], "saving": held[2], "rows_alone": alone_held}
    memory = np.mean([memory for *_, memory in seen])
    told = {**shares, "width": width, "error": error, "memory": memory}
    return {what: float(value) for what, value in told.items()}


if __name__ == "__main__":
    main()
