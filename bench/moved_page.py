"""For how long a program stands still while a page of it is moved, and put back.

`tailscope observe --signal mem:PID:SYMBOL:moved` a hundred times on tests/c/moving.c, of which
1, 8 or 64 threads count at full speed and six more sleep, wait, read and signal. It counts on its
own what it would have lost. About two minutes.

    .venv/bin/python bench/moved_page.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from harness import ROOT, machine, table

TAILSCOPE = ROOT / "target" / "release" / "tailscope"


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def stops(program: Path, threads: int, runs: int) -> tuple[list[float], list[float], int, str]:
    """µs on the way there and back, how often it was not moved, and what the program says."""
    with subprocess.Popen(
        [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as moving:
        assert moving.stdin and moving.stdout
        moving.stdout.readline()
        signal = f"mem:{moving.pid}:moving_page:moved"
        command = [TAILSCOPE, "observe", "--quiet", "--json", "--no-pauses", "--signal", signal]
        there, back, refused = [], [], 0
        for _ in range(runs):
            # Where the program has all CPUs, no two samples may be good enough: exit code 3.
            timed = [*command, "--duration", "20ms"]
            done = subprocess.run(timed, capture_output=True, text=True, check=False)
            moves = json.loads(done.stdout)["moves"]
            refused += not moves
            there += [m["there_us"] for m in moves]
            back += [m["back_us"] for m in moves if m["back_us"] is not None]
        moving.stdin.close()
        return there, back, refused, moving.stdout.read().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "moving"
        source = ROOT / "tests" / "c" / "moving.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        for threads in (1, 8, 64):
            there, back, refused, said = stops(program, threads, runs)
            for way, values in (("there", there), ("back", back)):
                shown = [f"{quantile(values, share):,.0f}" for share in (0.5, 0.9, 0.99)]
                rows.append((threads, way, len(values), *shown, f"{max(values):,.0f}", refused))
            print(f"{threads} threads: {said}")
    head = ("threads that count", "way", "moves", "p50, µs", "p90", "p99", "max", "not moved")
    print(machine(), table(head, [tuple(map(str, row)) for row in rows]), sep="\n\n")


if __name__ == "__main__":
    main()
