"""Does a ledger of the tail and some others say what the full one says, and how small is it?

Recordings are simulated in full (see explain_synthetic.py) and thinned by the recorder's rules: all
spans above p99, 2 % of the others, each row weighted by 1 / the probability with which it was
kept. Two questions:

- p50, p99, p99.9 and the saving of each planted cause, from the thinned ledger: do their 95 %
  intervals hold the full ledger's figures?
- How many rows must be drawn evenly for an interval of p99.9 that is no wider?

    .venv/bin/python bench/keeping.py
    .venv/bin/python bench/keeping.py --recordings 20 --no-result
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np
from explain_coverage import counted
from explain_synthetic import QUIET, Columns, Plant, World, simulate
from harness import Result, at_least, spread, table
from tailscope.engines.spans import block_power
from tailscope.statistics import bootstrap

TAIL, OTHERS = 0.99, 0.02
QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
PLANTS = (
    Plant("runqueue", 0.02, 400_000, 1_500_000),
    Plant("fault", 0.01, 200_000, 600_000),
    Plant("io", 0.004, 1_000_000, 4_000_000),
)
#: Shares of an even draw that are tried, from few to all.
EVEN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Figures:
    """What a ledger says: each figure with its interval, and from how many rows."""

    rows: int
    of: dict[str, bootstrap.Interval]


def thin(columns: Columns, probability: np.ndarray, rng: np.random.Generator) -> Columns:
    """The rows that are kept when each is with its own probability, with their weights."""
    kept = rng.random(len(probability)) < probability
    thinned = {name: column[kept] for name, column in columns.items()}
    return thinned | {"weight": 1 / probability[kept]}


def by_the_tail(columns: Columns) -> np.ndarray:
    """The recorder's probabilities: certainty from the tail's quantile on, else a small share."""
    wall = columns["wall_ns"]
    return np.where(wall >= np.quantile(wall, TAIL), 1.0, OTHERS)


def figures(columns: Columns, seconds: float, causes: tuple[str, ...]) -> Figures:
    """What `explain` makes of these rows."""
    power = block_power([int(seconds * 1e9)])
    blocks = (int(seconds * 1e9) >> power) + 1
    before = counted(columns, power, blocks)
    found = {}
    for name, quantile in QUANTILES.items():
        tail = before.distribution().bin_at(quantile)
        memory = bootstrap.memory(bootstrap.surplus(before, tail))
        draws = bootstrap.draw(blocks, memory, seed=1)
        found[name], first = bootstrap.interval_of(before, draws, quantile)
        if name != "p99":
            continue
        for cause in causes:
            after = counted(columns, power, blocks, cause)
            predicted, second = bootstrap.interval_of(after, draws, quantile)
            saved = found[name].ns - predicted.ns
            found[cause] = bootstrap.interval(saved, first - second, draws)
    return Figures(len(columns["wall_ns"]), found)


def width(interval: bootstrap.Interval) -> float:
    """Of an interval, in parts of its figure."""
    return (interval.hi - interval.lo) / interval.ns


def main() -> None:
    """Simulate, thin, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--recordings", type=int, default=100)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    world = World(args.rows, args.seconds, plants=(*QUIET, *PLANTS))
    causes = tuple(plant.cause for plant in PLANTS)
    held: dict[str, list[bool]] = {name: [] for name in (*QUANTILES, *causes)}
    kept_rows, kept_widths = [], []
    even_widths: dict[float, list[float]] = {share: [] for share in EVEN}
    for seed in range(args.recordings):
        columns = simulate(replace(world, seed=seed + 10))
        rng = np.random.default_rng(seed)
        full = figures(columns, args.seconds, causes)
        kept = figures(thin(columns, by_the_tail(columns), rng), args.seconds, causes)
        kept_rows.append(kept.rows)
        kept_widths.append(width(kept.of["p99.9"]))
        for name, answers in held.items():
            answers.append(bool(kept.of[name].lo <= full.of[name].ns <= kept.of[name].hi))
        for share, widths in even_widths.items():
            even = thin(columns, np.full(args.rows, share), rng)
            widths.append(width(figures(even, args.seconds, ()).of["p99.9"]))

    result = Result("keeping", "What a ledger of the tail and some others says")
    wanted = float(np.median(kept_widths))
    rows = [(name, f"{np.mean(answers):.0%}") for name, answers in held.items()]
    result.say(
        "The full ledger's figure inside the thinned ledger's interval",
        table(("figure", f"of {args.recordings} recordings"), rows),
    )
    rows = [(f"the tail and {OTHERS:.0%}", f"{np.median(kept_rows):,.0f}", f"{wanted:.2%}")]
    rows += [
        (f"{share:.0%} evenly", f"{args.rows * share:,.0f}", f"{np.median(widths):.2%}")
        for share, widths in even_widths.items()
    ]
    result.say(
        "Width of the interval of p99.9, in parts of it", table(("kept", "rows", "width"), rows)
    )
    # The fewest evenly drawn rows whose interval is no wider, to 5 %; all of them, if none is.
    enough = next((s for s, w in even_widths.items() if np.median(w) <= 1.05 * wanted), 1.0)
    worst = min(held, key=lambda name: np.mean(held[name]))
    result.bars = [
        at_least(f"held by the thinned ledger, the worst figure ({worst})", 95,
                 100 * float(np.mean(held[worst])), "of 100", 0),
        at_least("times fewer rows than an even draw for p99.9's interval", 10,
                 spread([args.rows * enough / kept for kept in kept_rows]), "times"),
    ]  # fmt: skip
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
