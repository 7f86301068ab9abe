"""How long `explain` takes for 10 million rows, and how much memory.

Two ledgers are generated once and kept: a server with six causes, and one with twelve at once. Each
is explained as a user would, in a process of its own. The bars: 15 s and 1 GiB on two cores, on a
machine that is otherwise quiet.

    python bench/explain_speed.py --folder /tmp/ledgers
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

GENERATOR = Path(__file__).with_name("explain_synthetic.py")
WORLDS = {"six causes": (), "twelve causes": ("--busy",)}


def measure(ledger: Path, html: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and the largest resident size (MiB) of one run."""
    command = [sys.executable, "-m", "tailscope.cli", str(ledger), "--html", str(html), "-q"]
    silent = os.open(os.devnull, os.O_WRONLY)
    begun = time.monotonic()
    child = os.posix_spawn(
        sys.executable, command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, silent, 1)]
    )
    _, status, usage = os.wait4(child, 0)
    os.close(silent)
    if status:
        raise SystemExit(f"explain failed on {ledger}")
    return time.monotonic() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    """Print a line for each run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the ledgers are kept")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    print(f"{'ledger':<16} {'wall':>7} {'CPU':>7} {'memory':>9}   load before")
    for name, options in WORLDS.items():
        ledger = chosen.folder / f"{name.replace(' ', '-')}-{chosen.rows}"
        if not (ledger / "ledger.json").exists():
            # In a process of its own: a child's largest size is never below what its parent had.
            size = ("--rows", str(chosen.rows), "--seconds", "600")
            subprocess.run([sys.executable, GENERATOR, ledger, *size, *options], check=True)
        for _ in range(chosen.runs):
            load = os.getloadavg()[0]
            wall, cpu, memory = measure(ledger, chosen.folder / "report.html")
            print(
                f"{name:<16} {wall:5.1f} s {cpu:5.1f} s {memory:5.0f} MiB   {load:.2f}", flush=True
            )


if __name__ == "__main__":
    main()
