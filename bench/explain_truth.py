"""Does `explain` find what was planted, and is it worth what it says?

Many synthetic recordings, of five kinds: independent causes; a cause that always comes along with a
stronger one; lengths with heavy tails; causes that are not measured in 60 % of the time; and all of
that at once. In each two causes of different weight make the tail. The truth is the same recording
generated without a cause. A line a kind: how often the most valuable cause came first by its saving
(top-1), and how far the savings of the planted causes were from the truth.

Besides the saving as it is, which must hit the percentile of this very recording, the line says how
often its 95 % interval holds the truth.

    .venv/bin/python bench/explain_truth.py --recordings 200 --jobs 2 --seen verdicts.jsonl

The result is written when all kinds have all their recordings.

With `--seen` each verdict is kept in that file, and what is in it already is not done again: a run
may be ended at any time (`--minutes`) and taken up later.

`surely` is the lower end of the 95 % interval of top-1; 299 of 299 right would make it 99 %.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import tailscope
from explain_synthetic import QUIET, Plant, World, generate, simulate
from harness import Result, table
from numpy.typing import NDArray

PERCENTILE = 99
HEAD = ("kind", "top-1", "surely", "within 10 %", "median error", "largest", "interval")
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


@dataclass(frozen=True)
class Verdict:
    """One recording: was the most valuable cause found, and its size?"""

    seed: int
    #: The most valuable cause, and the one that explain put first.
    top: str
    first: str
    #: What they are worth in truth, ns.
    top_ns: float
    first_ns: float
    #: The relative error of the top cause's saving, and whether its interval holds the truth.
    error: float
    held: bool


def worth(world: World, causes: Sequence[str]) -> dict[str, float]:
    """What fixing each cause alone saves, ns: exact, from the whole recording."""
    columns = simulate(world)
    wall = columns["wall_ns"]

    def target(walls: NDArray) -> float:
        return float(np.quantile(walls, PERCENTILE / 100, method="inverted_cdf"))

    before = target(wall)
    return {cause: before - target(wall - columns[f"{cause}_ns"]) for cause in causes}


def judge(world: World) -> Verdict:
    """Generate a recording, explain it, and hold the answer against the truth."""
    folder = Path(tempfile.mkdtemp(prefix="tailscope-truth-"))
    try:
        generate(folder, world, file_rows=world.rows)
        found = tailscope.open(folder).explain(f"p{PERCENTILE}")
    finally:
        shutil.rmtree(folder)
    causes = [plant.cause for plant in world.plants if plant.cause in (*PLANTED, "softirq_other")]
    # The generator derives a piece's seed from the world's.
    truth = worth(replace(world, seed=world.seed * 1_000, missing=0.0), causes)
    top = max(truth, key=lambda cause: truth[cause])
    saving = next(cause.saving for cause in found.causes if cause.name == top)
    first = found.causes[0].name
    return Verdict(
        seed=world.seed,
        top=top,
        first=first,
        top_ns=truth[top],
        first_ns=truth.get(first, 0.0),
        error=saving.ns / truth[top] - 1,
        held=bool(saving.lo <= truth[top] <= saving.hi),
    )


class Seen:
    """The verdicts so far, by kind and seed, for recordings of one size; in a file if one is named.

    A line that was cut off when a run was ended is no verdict.
    """

    def __init__(self, path: Path | None, size: str) -> None:
        self.path, self.size = path, size
        self.verdicts: dict[tuple[str, int], Verdict] = {}
        for line in path.read_text().splitlines() if path and path.exists() else ():
            try:
                one = json.loads(line)
            except ValueError:
                continue
            if one["size"] == size:
                self.verdicts[one["kind"], one["verdict"]["seed"]] = Verdict(**one["verdict"])

    def add(self, kind: str, verdict: Verdict) -> None:
        """Keep one more."""
        self.verdicts[kind, verdict.seed] = verdict
        if self.path:
            line = {"size": self.size, "kind": kind, "verdict": asdict(verdict)}
            with self.path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def at_least(right: int, tried: int) -> float:
    """The lower end of the 95 % interval (Clopper and Pearson's, one-sided) of a share.

    By bisection of the binomial distribution, for no more than this would SciPy be needed.
    """
    low, high = 0.0, right / tried
    for _ in range(60):
        share = (low + high) / 2
        beyond = sum(
            math.comb(tried, k) * share**k * (1 - share) ** (tried - k)
            for k in range(right, tried + 1)
        )
        low, high = (share, high) if beyond < 0.05 else (low, share)
    return low


def main() -> None:
    """Prints a line for each kind, and writes the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recordings", "--seeds", type=int, default=20, help="of each kind")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--kind", choices=KINDS, help="default: all")
    parser.add_argument("--jobs", type=int, default=1, help="recordings at once; default: 1")
    parser.add_argument("--seen", type=Path, help="keep verdicts in this file, and go on from it")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin none after so many")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    chosen = parser.parse_args()
    until = time.monotonic() + 60 * chosen.minutes
    size = f"{chosen.rows:,} spans in {chosen.seconds:g} s"
    seen = Seen(chosen.seen, size)
    result = Result("explain_truth", "Whether explain finds what was planted, and what it is worth")
    rows = []
    with multiprocessing.get_context("spawn").Pool(chosen.jobs) as pool:
        for number, (name, make) in enumerate(KINDS.items()):
            if chosen.kind not in (None, name):
                continue
            seeds = range(1, chosen.recordings + 1)
            left = [seed for seed in seeds if (name, seed) not in seen.verdicts]
            while left and time.monotonic() < until:
                now, left = left[: chosen.jobs], left[chosen.jobs :]
                worlds = [
                    replace(
                        make(np.random.default_rng([seed, number])),
                        rows=chosen.rows,
                        seconds=chosen.seconds,
                        # In truth nobody waits for another: no two spans of a thread overlap.
                        threads=chosen.rows // 1_000,
                        seed=seed,
                    )
                    for seed in now
                ]
                for verdict in pool.imap(judge, worlds):
                    seen.add(name, verdict)
            if done := [
                seen.verdicts[name, seed] for seed in seeds if (name, seed) in seen.verdicts
            ]:
                rows.append(line(name, done))
                result.figures[name] = [asdict(verdict) for verdict in done]
    result.say(f"{chosen.recordings} recordings of {size} of each kind", table(HEAD, rows))
    every = [verdict for found in result.figures.values() for verdict in found]
    right = sum(verdict["first"] == verdict["top"] for verdict in every)
    close = sum(abs(verdict["error"]) <= 0.1 for verdict in every)
    result.summary = (
        f"{len(every)} recordings: the most valuable cause is first in {right}, its saving is "
        f"within 10 % in {close}"
    )
    if len(every) == chosen.recordings * len(KINDS) and not chosen.no_result:
        result.write()


def line(name: str, seen: Sequence[Verdict]) -> tuple[str, ...]:
    """One kind's line; prints it, and each recording in which another cause came first."""
    sizes = np.abs([verdict.error for verdict in seen])
    wrong = [verdict for verdict in seen if verdict.first != verdict.top]
    right = len(seen) - len(wrong)
    told = (
        name,
        f"{right}/{len(seen)}",
        f"{at_least(right, len(seen)):.1%}",
        f"{np.mean(sizes <= 0.1):.1%}",
        f"{np.median(sizes):.2%}",
        f"{sizes.max():.1%}",
        f"{np.mean([verdict.held for verdict in seen]):.1%}",
    )
    print(" | ".join(told), flush=True)
    for verdict in wrong:
        print(
            f"    seed {verdict.seed}: {verdict.top} is worth {verdict.top_ns / 1e3:,.1f} µs, and "
            f"{verdict.first} came first, worth {verdict.first_ns / 1e3:,.1f} µs",
            flush=True,
        )
    return told


if __name__ == "__main__":
    main()
