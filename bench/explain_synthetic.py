"""Synthetic ledgers with known truth, in the layout of docs/reference/schema.md.

Latency is built as `running` plus independent causes, each with its own stream of random numbers.
Leaving a cause out therefore changes nothing else: the same seed without it is the run that would
have happened had the cause been fixed, and its percentiles are the truth that `explain` must
predict.

Causes come in bursts (a two-state process in time), because real ones do, and because intervals
that assume independent spans fail exactly there.

    python bench/explain_synthetic.py /tmp/ledger --rows 10_000_000
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

CAUSES = (
    "runqueue", "preempted", "throttled", "lock", "io", "network", "sleep",
    "irq", "softirq_net", "softirq_timer", "softirq_other", "fault", "steal", "queue",
)  # fmt: skip
#: Causes that not all ledgers have: written where their columns are given.
NEWER = ("stopped", "reclaim", "tcp", "accept", "unknown", "downstream")
#: Causes that no recorder knows: they bring a ledger to the twenty of the largest measurement.
EXTRA = tuple(f"extra_{number}" for number in range(1, 7))
#: The key of a file's checksum in its footer, and what stands for it while it is computed.
CHECKSUM, ROOM = "tailscope.crc32", "00000000"
#: The footer's second sign of a checksum.
MADE_WITH = "tailscope 0.1.0 with checksum"
START_NS = 1_795_000_000_000_000_000
Columns = dict[str, NDArray]


@dataclass(frozen=True)
class Plant:
    """One cause: how often it strikes, for how long, and how bursty it is.

    `probability` holds inside a burst; bursts cover `coverage` of the time and last `burst_s` on
    average (coverage 1: always on). Lengths are `floor_ns` plus an exponential of mean `mean_ns`,
    or, with a `tail`, a Lomax of that mean and tail index (above 1; at 2 and below the variance is
    infinite). `along` names an earlier plant: then it strikes only spans that one strikes.
    """

    cause: str
    probability: float
    mean_ns: float
    floor_ns: float = 0.0
    coverage: float = 1.0
    burst_s: float = 0.5
    tail: float | None = None
    along: str | None = None

    def lengths(self, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How long it lasts in each row that it strikes, in ns."""
        if self.tail is None:
            drawn = rng.exponential(self.mean_ns, rows)
        else:
            drawn = rng.pareto(self.tail, rows) * self.mean_ns * (self.tail - 1)
        return (self.floor_ns + drawn).astype(np.int64)


#: A server on a shared machine: noise that every span may have, and one planted cause of the tail.
QUIET = (
    Plant("softirq_net", 0.5, 2_500, 500),
    Plant("irq", 0.03, 3_000, 800),
    Plant("softirq_timer", 0.01, 2_000, 500),
    Plant("fault", 0.005, 2_500, 1_000),
    Plant("lock", 0.01, 20_000, 2_000),
)
RUNQUEUE = Plant("runqueue", 0.30, 900_000, 3_000_000, coverage=0.06, burst_s=0.4)
#: A server with everything at once: what `explain` has most work with.
BUSY = (
    Plant("runqueue", 0.25, 700_000, 900_000, coverage=0.05, burst_s=0.4),
    Plant("preempted", 0.004, 300_000, 100_000),
    Plant("lock", 0.02, 90_000, 3_000),
    Plant("io", 0.004, 1_500_000, 600_000, coverage=0.3, burst_s=5.0),
    Plant("network", 0.05, 60_000, 5_000),
    Plant("sleep", 0.001, 600_000, 5_000),
    Plant("irq", 0.10, 3_000, 500),
    Plant("softirq_net", 0.6, 3_000, 500),
    Plant("softirq_timer", 0.05, 2_000, 300),
    Plant("softirq_other", 0.02, 3_000, 500),
    Plant("fault", 0.05, 4_000, 800),
    Plant("queue", 0.5, 40_000, 1_000, coverage=0.3),
)
#: Every cause that all ledgers have and six more, with none missing.
WIDE = (
    *BUSY,
    Plant("throttled", 0.02, 400_000, 50_000, coverage=0.2, burst_s=2.0),
    Plant("steal", 0.01, 200_000, 20_000, coverage=0.5, burst_s=3.0),
    *(Plant(name, 0.02 * number, 8_000, 500) for number, name in enumerate(EXTRA, 1)),
)


@dataclass(frozen=True)
class World:
    """What a synthetic recording is made of; lengths in ns, or in s where the name says so.

    `missing` is the share of epochs of one second in which a cause is not measured, drawn for each
    cause on its own: counters that take turns.
    """

    rows: int
    seconds: float = 300.0
    plants: Sequence[Plant] = (*QUIET, RUNQUEUE)
    running_ns: float = 38_000.0
    running_sigma: float = 0.22
    drift: float = 0.08
    keep: float = 1.0
    span: str = "recv..send"
    host: str = "db1"
    seed: int = 1
    missing: float = 0.0
    #: Threads that answer in turn.
    threads: int = 1
    absent: dict[str, str] = field(
        default_factory=lambda: {
            "steal": "no steal-time symbol, and /proc/stat shows none on this machine",
            "throttled": "no CPU quota in this kernel's configuration",
        }
    )


def bursts(times: NDArray, plant: Plant, seconds: float, rng: np.random.Generator) -> NDArray:
    """Which of `times` (s) fall into a burst: on and off periods are exponential."""
    if plant.coverage >= 1.0:
        return np.ones(len(times), dtype=bool)
    off = plant.burst_s * (1 - plant.coverage) / plant.coverage
    pairs = int(seconds / (off + plant.burst_s) * 2) + 50
    lengths = np.empty(2 * pairs)
    lengths[0::2] = rng.exponential(off, pairs)
    lengths[1::2] = rng.exponential(plant.burst_s, pairs)
    edges = np.cumsum(lengths) - rng.exponential(off)
    return np.searchsorted(edges, times, side="right") % 2 == 1


def simulate(world: World, without: Sequence[str] = ()) -> Columns:
    """The spans of a world as columns; `without` names causes that were fixed."""
    streams = np.random.SeedSequence(world.seed).spawn(3 + len(CAUSES + EXTRA))
    rng = np.random.default_rng(streams[0])
    times = np.sort(rng.random(world.rows) * world.seconds)
    waves = np.sin(2 * np.pi * (times / world.seconds * 3 + rng.random()))
    running = world.running_ns * np.exp(
        world.running_sigma * rng.standard_normal(world.rows) + world.drift * waves
    )
    wall = running.astype(np.int64)
    columns: Columns = {"start_ns": START_NS + (times * 1e9).astype(np.int64)}
    columns["tid"] = 4711 + np.arange(world.rows) % world.threads
    hits: dict[str, NDArray] = {}
    gone = np.random.default_rng([world.seed, 3])
    for plant in world.plants:
        stream = np.random.default_rng(streams[3 + (CAUSES + EXTRA).index(plant.cause)])
        on = bursts(times, plant, world.seconds, stream)
        hit = (stream.random(world.rows) < plant.probability) & on
        if plant.along:
            hit &= hits[plant.along]
        hits[plant.cause] = hit
        length = plant.lengths(world.rows, stream)
        if world.missing:
            epochs = gone.random(int(world.seconds) + 1) < world.missing
            columns[f"{plant.cause}_gone"] = epochs[times.astype(np.int64)]
        if plant.cause in without:
            continue
        ns = np.where(hit, length, 0)
        columns[f"{plant.cause}_ns"] = ns
        columns[f"{plant.cause}_n"] = hit.astype(np.int64)
        wall = wall + ns
    columns["wall_ns"] = wall
    keep = np.random.default_rng(streams[1]).random(world.rows)
    columns["weight"] = np.ones(world.rows)
    if world.keep < 1.0:
        slow = wall >= np.quantile(wall, 0.99)
        kept = slow | (keep < world.keep)
        columns["weight"] = np.where(slow, 1.0, 1.0 / world.keep)
        columns = {name: values[kept] for name, values in columns.items()}
    return columns


def truth(world: World, percentile: float, without: Sequence[str] = ()) -> float:
    """The percentile (0 to 100) of the world's spans in ns, all of them, with some causes fixed."""
    whole = World(**{**world.__dict__, "keep": 1.0})
    wall = simulate(whole, without)["wall_ns"]
    return float(np.quantile(wall, percentile / 100, method="inverted_cdf"))


def pieces(world: World, rows: int) -> Iterator[World]:
    """The world cut into worlds of at most `rows`, one after the other in time."""
    count = -(-world.rows // rows)
    for number in range(count):
        share = min(rows, world.rows - number * rows)
        yield World(
            **{
                **world.__dict__,
                "rows": share,
                "seconds": world.seconds * share / world.rows,
                "seed": world.seed * 1_000 + number,
            }
        )


def write(
    folder: Path, columns: Columns, world: World, number: int = 0, offset_ns: int = 0
) -> Path:
    """One sealed Parquet file with the schema's columns; returns its path."""
    place = folder / f"host={world.host}" / "hour=2026-11-18T11"
    place.mkdir(parents=True, exist_ok=True)
    path = place / f"{number:06}.parquet"
    select = [
        f"start_ns + {offset_ns} AS start_ns", f"'{world.span}' AS span", "NULL::BIGINT AS id",
        "(start_ns // 1000 % 2)::BIGINT AS cpu", "wall_ns", "weight",
    ]  # fmt: skip
    select += [name if name in columns else f"4711::BIGINT AS {name}" for name in ("pid", "tid")]
    extra = [plant.cause for plant in world.plants if plant.cause in EXTRA]
    newer = [cause for cause in NEWER if f"{cause}_ns" in columns]
    for cause in (*CAUSES, *newer, *extra):
        for name in (f"{cause}_ns", f"{cause}_n"):
            absent = "NULL" if cause in world.absent else "0"
            if f"{cause}_gone" in columns:
                select.append(f"CASE WHEN NOT {cause}_gone THEN {name} END AS {name}")
            else:
                select.append(name if name in columns else f"{absent}::BIGINT AS {name}")
    with duckdb.connect() as engine:
        engine.execute("SET threads = 2")
        engine.register("columns", columns)
        rows = f"SELECT {', '.join(select)} FROM columns"
        engine.execute(
            f"COPY ({rows}) TO {quoted(path)} "
            f"(FORMAT parquet, CODEC zstd, KV_METADATA {{'{CHECKSUM}': '{ROOM}', "
            # No two files of recordings are the same; of two worlds they might be.
            f"made: '{MADE_WITH}', place: {quoted(Path(folder.name) / path.name)}}})"
        )
    return seal(path)


def seal(path: Path) -> Path:
    """Fill in a file's checksum (docs/reference/schema.md), for which its footer has room."""
    held = path.read_bytes()
    mark = f"{CHECKSUM}\x18\x08".encode()
    place = held.rindex(mark) + len(mark)
    held = held[:place] + ROOM.encode() + held[place + len(ROOM) :]
    checksum = f"{zlib.crc32(held):08x}".encode()
    path.write_bytes(held[:place] + checksum + held[place + len(ROOM) :])
    return path


def sealed_json(about: dict) -> str:
    """A ledger.json with its checksum."""
    rest = {name: value for name, value in about.items() if name != "crc32"}
    text = json.dumps(rest | {"crc32": ROOM}, indent=2)
    before, _, after = text.rpartition(ROOM)
    return f"{before}{zlib.crc32(text.encode()):08x}{after}"


def quoted(path: Path) -> str:
    """A path inside a statement."""
    return "'" + str(path).replace("'", "''") + "'"


def describe(world: World, rows: int, files: int) -> dict:
    """A ledger.json as the recorder would have left it."""
    ladder = {cause: {"rung": "tracepoint", "why": None} for cause in CAUSES}
    ladder["fault"] = {"rung": "tracepoint+software event", "why": "fentry refused: EPERM"}
    ladder |= {cause: {"rung": None, "why": why} for cause, why in world.absent.items()}
    return {
        "schema": 1,
        "state": "done",
        "tailscope": "0.1.0",
        "started_ns": START_NS,
        "ended_ns": START_NS + int(world.seconds * 1e9),
        "machine": {
            "host": world.host,
            "kernel": "6.18.5",
            "arch": "x86_64",
            "cpus": 2,
            "model": "synthetic",
        },
        "clock": {"source": "tsc", "hz": 2_500_000_000},
        "command": ["tailscope", "record", "-p", "4711"],
        "spans": [f"syscall:{world.span}"],
        "sample": 1.0,
        "keep": world.keep,
        "ladder": ladder,
        "causes": [cause for cause in CAUSES if cause not in world.absent],
        "rows": rows,
        "bytes": 0,
        "files": files,
        "seen": world.rows,
        "lost": {"ring_full": 0, "recursion": 0, "slots": 0},
        "cost": {"cpu_ns": int(world.seconds * 1.3e7), "max_rss_bytes": 21 << 20},
    }


def generate(folder: Path, world: World, file_rows: int = 1_000_000) -> Path:
    """A whole ledger: files and ledger.json; returns the folder."""
    rows = files = offset = 0
    for number, piece in enumerate(pieces(world, file_rows)):
        columns = simulate(piece)
        write(folder, columns, piece, number, offset)
        rows += len(columns["wall_ns"])
        files += 1
        offset += int(piece.seconds * 1e9)
    (folder / "ledger.json").write_text(sealed_json(describe(world, rows, files)))
    return folder


def main() -> None:
    """Write one ledger from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--keep", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--busy", action="store_true", help="twelve causes instead of six")
    parser.add_argument("--wide", action="store_true", help="twenty causes, six of them made up")
    chosen = parser.parse_args()
    plants = WIDE if chosen.wide else BUSY if chosen.busy else (*QUIET, RUNQUEUE)
    world = World(chosen.rows, chosen.seconds, plants, keep=chosen.keep, seed=chosen.seed)
    if chosen.wide:
        world = replace(world, absent={})
    generate(chosen.folder, world)


if __name__ == "__main__":
    main()
