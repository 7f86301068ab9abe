"""Does `explain` find what was planted, and is it worth what it says?

Many synthetic recordings, of five kinds: independent causes; a cause that always comes along with a
stronger one; lengths with heavy tails; causes that are not measured in 60 % of the time; and all of
that at once. In each two causes of different weight make the tail. The truth is the same recording
generated without a cause. A line a kind: how often the most valuable cause came first by its saving
(top-1), and how far the savings of the planted causes were from the truth.

Besides the saving as it is, which must hit the percentile of this very recording, the line says how
often its 95 % interval holds the truth.

    python bench/explain_truth.py --recordings 20
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import tailscope
from explain_synthetic import QUIET, Plant, World, generate, truth

PERCENTILE = 99
NOISE = tuple(plant for plant in QUIET if plant.cause != "lock")
#: What can be planted; the two of a recording are drawn.
PLANTED = ("runqueue", "preempted", "lock", "io", "network", "queue")


def planted(rng: np.random.Generator, tail: float | None = None) -> tuple[Plant, Plant]:
    """Two causes of the tail, the second about a third as frequent as the first."""
    first, second = rng.choice(PLANTED, 2, replace=False)
    strong = Plant(
        first,
        probability=rng.uniform(0.3, 0.5),
        mean_ns=rng.uniform(4e5, 1.2e6),
        floor_ns=rng.uniform(2e5, 1e6),
        coverage=rng.uniform(0.06, 0.1),
        burst_s=0.1,
        tail=tail,
    )
    weak = Plant(second, rng.uniform(0.004, 0.006), rng.uniform(1e5, 4e5), 5e4, tail=tail)
    return strong, weak


def independent(rng: np.random.Generator) -> World:
    """Causes that strike on their own."""
    return World(0, plants=(*NOISE, *planted(rng)))


def correlated(rng: np.random.Generator) -> World:
    """The stronger cause brings another one along in nearly all of its spans."""
    strong, weak = planted(rng)
    along = Plant("softirq_other", 0.95, 40_000, 10_000, along=strong.cause)
    return World(0, plants=(*NOISE, strong, weak, along))


def heavy(rng: np.random.Generator) -> World:
    """Lengths whose variance is infinite or nearly so."""
    return World(0, plants=(*NOISE, *planted(rng, tail=rng.uniform(1.8, 2.5))))


def missing(rng: np.random.Generator) -> World:
    """Each cause is unknown in 60 % of the seconds."""
    return replace(independent(rng), missing=0.6)


def everything(rng: np.random.Generator) -> World:
    """Correlated, heavy-tailed and missing."""
    strong, weak = planted(rng, tail=rng.uniform(1.8, 2.5))
    along = Plant("softirq_other", 0.95, 40_000, 10_000, along=strong.cause)
    return World(0, plants=(*NOISE, strong, weak, along), missing=0.6)


KINDS: dict[str, Callable[[np.random.Generator], World]] = {
    "independent": independent,
    "correlated": correlated,
    "heavy-tailed": heavy,
    "60 % missing": missing,
    "all of these": everything,
}


def judge(world: World, folder: Path) -> tuple[bool, float, bool]:
    """Whether the most valuable cause came first; its saving's relative error; its interval."""
    generate(folder, world, file_rows=world.rows)
    found = tailscope.open(folder).explain(f"p{PERCENTILE}")
    # The generator derives a piece's seed from the world's.
    whole = replace(world, seed=world.seed * 1_000, missing=0.0)
    before = truth(whole, PERCENTILE)
    causes = [plant.cause for plant in world.plants if plant.cause in (*PLANTED, "softirq_other")]
    worth = {cause: before - truth(whole, PERCENTILE, (cause,)) for cause in causes}
    top = max(worth, key=lambda cause: worth[cause])
    saving = next(cause.saving for cause in found.causes if cause.name == top)
    held = saving.lo <= worth[top] <= saving.hi
    return found.causes[0].name == top, saving.ns / worth[top] - 1, held


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", type=int, default=20, help="of each kind")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kind", choices=KINDS, help="default: all")
    chosen = parser.parse_args()
    print(f"{chosen.recordings} recordings of {chosen.rows:,} spans in {chosen.seconds:g} s each")
    print(f"{'kind':<14} {'top-1':>7} {'within 10 %':>12} {'median error':>13} {'largest':>8} "
          f"{'interval':>9}")  # fmt: skip
    for number, (name, make) in enumerate(KINDS.items()):
        if chosen.kind not in (None, name):
            continue
        seen = []
        for seed in range(1, chosen.recordings + 1):
            world = make(np.random.default_rng([seed, number]))
            world = replace(world, rows=chosen.rows, seconds=chosen.seconds, seed=seed)
            folder = Path(tempfile.mkdtemp(prefix="tailscope-truth-"))
            try:
                seen.append(judge(world, folder))
            finally:
                shutil.rmtree(folder)
        top, errors, held = (np.array(column) for column in zip(*seen, strict=True))
        sizes = np.abs(errors)
        print(
            f"{name:<14} {top.mean():>7.1%} {np.mean(sizes <= 0.1):>12.1%} "
            f"{np.median(sizes):>13.2%} {sizes.max():>8.1%} {held.mean():>9.1%}",
            flush=True,
        )


if __name__ == "__main__":
    main()
