"""How long `explain` takes, and how much memory: 10 million rows of six and of twelve causes, and
twenty causes at 1, 10 and 100 million rows.

The ledgers are generated once and kept. Each is explained as a user would, in a process of its own,
report included. Six of the twenty causes are made up, for the schema has fourteen: the process is
told their names first. The bars, on two cores that are otherwise idle: 15 s and 1 GiB for 10
million rows; 90 s and 4 GiB for 100 million rows of twenty causes, and linear up to there.

    .venv/bin/python bench/explain_speed.py --folder /tmp/ledgers
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from explain_synthetic import EXTRA
from harness import Result, at_most, spread, table

GENERATOR = Path(__file__).with_name("explain_synthetic.py")
#: Name, the generator's options, millions of rows.
LEDGERS = (
    ("six causes", (), 10),
    ("twelve causes", ("--busy",), 10),
    ("twenty causes", ("--wide",), 1),
    ("twenty causes", ("--wide",), 10),
    ("twenty causes", ("--wide",), 100),
)
#: Bars, by millions of rows of twenty causes: seconds and GiB.
BARS = {10: (15, 1), 100: (90, 4)}
#: `explain`, with the made-up causes known before anything looks at the list.
RUN = f"""
import sys
from tailscope.ledger import causes
extra = {EXTRA!r}
causes.MEANING.update(dict.fromkeys(extra, "made up"))
causes.CAUSES += extra
from tailscope import cli
sys.exit(cli.main(sys.argv[1:]))
"""


def measure(ledger: Path, html: Path) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and the largest resident size (MiB) of one run."""
    command = [sys.executable, "-c", RUN, str(ledger), "--html", str(html), "-q"]
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
    """Measures, prints a line for each run, and writes the result if all ledgers were explained."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the ledgers are kept")
    parser.add_argument("--most", type=int, default=100, help="million rows at most; default: 100")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    chosen = parser.parse_args()
    result = Result("explain_speed", "How long explain takes, and how much memory")
    rows = []
    print(f"{'ledger':<14} {'rows':>6} {'wall':>8} {'CPU':>8} {'memory':>9}   load before")
    for name, options, millions in LEDGERS:
        if millions > chosen.most:
            continue
        ledger = chosen.folder / f"{name.replace(' ', '-')}-{millions}M"
        if not (ledger / "ledger.json").exists():
            # In a process of its own: a child's largest size is never below what its parent had.
            size = ("--rows", str(millions * 1_000_000), "--seconds", str(60 * millions))
            subprocess.run([sys.executable, GENERATOR, ledger, *size, *options], check=True)
        runs, loads = [], []
        for _ in range(chosen.runs):
            load = os.getloadavg()[0]
            wall, cpu, memory = measure(ledger, chosen.folder / "report.html")
            print(
                f"{name:<14} {millions:>4} M {wall:6.1f} s {cpu:6.1f} s {memory:5.0f} MiB   "
                f"{load:.2f}",
                flush=True,
            )
            runs.append((wall, cpu, memory))
            loads.append(load)
        rows.append(report(result, name, millions, runs, loads))
    head = ("rows", "wall, s", "CPU, s", "memory, MiB", "load before")
    result.say("Runs, report included", table(head, rows))
    if chosen.most >= LEDGERS[-1][2] and not chosen.no_result:
        result.write()


def report(
    result: Result,
    name: str,
    millions: int,
    runs: Sequence[tuple[float, float, float]],
    loads: Sequence[float],
) -> tuple[str, ...]:
    """A ledger's bars and figures; its line of the table."""
    what = f"{millions} million rows of {name}"
    walls, cpus, sizes = zip(*runs, strict=True)
    result.figures[what] = {"wall_s": walls, "cpu_s": cpus, "mib": sizes}
    if name == "twenty causes" and millions in BARS:
        seconds, gib = BARS[millions]
        result.bars += [
            at_most(what, seconds, spread(walls), "s"),
            at_most(f"{what}: memory", 1024 * gib, max(sizes), "MiB", 0),
        ]
        told = f"{what} in {spread(walls).median:.1f} s, {max(sizes):,.0f} MiB"
        result.summary = "; ".join(filter(None, (result.summary, told)))
    seen = (", ".join(f"{one:.1f}" for one in of) for of in (walls, cpus))
    return (what, *seen, f"{max(sizes):,.0f}", ", ".join(f"{load:.1f}" for load in loads))


if __name__ == "__main__":
    main()
