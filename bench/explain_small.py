"""What `explain` gains by rows in memory: small ledgers with all rows in memory, and with none.

Each run is a process of its own; the two kinds take turns.

    python bench/explain_small.py --runs 5
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from explain_synthetic import BUSY, World, generate

#: Rows of the ledgers.
SIZES = (1_000, 5_000, 50_000, 100_000)
#: `explain`, with so many rows in memory at most.
RUN = """
import sys
from tailscope.engines import draw
draw.IN_MEMORY = int(sys.argv.pop(1))
from tailscope import cli
sys.exit(cli.main())
"""
#: Rows in memory at most: as shipped, and none.
LIMITS = {"in memory": 100_000, "engine alone": 0}


def measure(ledger: Path, limit: int) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    command = [sys.executable, "-c", RUN, str(limit), str(ledger), "-q"]
    silent = os.open(os.devnull, os.O_WRONLY)
    begun = time.monotonic()
    child = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, silent, 1)]
    )
    _, status, usage = os.wait4(child, 0)
    os.close(silent)
    if status:
        raise SystemExit(f"explain failed on {ledger}")
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print a table: the median of the runs, with the least and the most."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    print("| rows | rows held | wall (least to most) | CPU |")
    print("| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for rows in SIZES:
            ledger = generate(Path(folder) / str(rows), World(rows, rows / 100, BUSY))
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in LIMITS}
            for _ in range(chosen.runs):
                for name, limit in LIMITS.items():
                    found[name].append(measure(ledger, limit))
            for name, times in found.items():
                wall, cpu = zip(*times, strict=True)
                print(
                    f"| {rows:,} | {name} | {statistics.median(wall):.2f} s "
                    f"({min(wall):.2f} to {max(wall):.2f}) | {statistics.median(cpu):.2f} s |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
