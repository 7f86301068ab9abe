"""For how long a program stands still while a page of it is moved, and put back.

`tailscope observe --signal mem:PID:SYMBOL:moved` a hundred times on tests/c/moving.c, of which
1, 8 or 64 threads count at full speed and six more sleep, wait, read and signal. It counts on its
own what it would have lost. Beside the two stops of a move there are those of one thread alone, in
which the file is made, and those in vain, after which all are let go before anything has changed:
the last row of each has the longest of all in a run. What the host took of the machine's CPUs
meanwhile is told, as far as `/proc/stat` knows it. About two minutes.

    .venv/bin/python bench/moved_page.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import ROOT, machine, table

LONGEST = 1000  # µs: for no longer is anybody to stand still
#: What the report says where a page was not moved: how many stops, and the longest.
IN_VAIN = re.compile(r"of (\d+) times .*?, (\d+) µs at most")
TAILSCOPE = ROOT / "target" / "release" / "tailscope"


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


@dataclass
class Seen:
    """Of each run, in µs: how long the way there and back took, and the longest of all stops."""

    there: list[float] = field(default_factory=list)
    back: list[float] = field(default_factory=list)
    longest: list[float] = field(default_factory=list)
    #: Stops after which nothing had changed, and runs in which the page was not moved.
    in_vain: int = 0
    refused: int = 0
    #: Runs with a stop of over a millisecond: the stop in µs, and s that the host took meanwhile.
    late: list[tuple[float, float]] = field(default_factory=list)

    def add(self, report: dict[str, Any]) -> None:
        """Takes the report of a run."""
        for move in report["moves"]:
            self.there.append(move["there_us"])
            self.back += [move["back_us"]] if move["back_us"] is not None else []
            self.longest.append(move["longest_us"])
            # One thread alone, all of them, and all of them once more.
            self.in_vain += move["stops"] - 3
        if not report["moves"]:
            self.refused += 1
            if found := IN_VAIN.search(report["rates"][0]["how"]):
                self.in_vain += int(found[1])
                self.longest.append(float(found[2]))

    def rows(self) -> Iterator[tuple[str, ...]]:
        """For the table."""
        for way, values in (("there", self.there), ("back", self.back), ("any", self.longest)):
            shown = [f"{quantile(values, share):,.0f}" for share in (0.5, 0.9, 0.99)] + [
                f"{max(values):,.0f}",
                f"{sum(value > LONGEST for value in values)}",
            ]
            rest = [f"{self.in_vain}", f"{self.refused}"] if way == "any" else ["", ""]
            yield (way, f"{len(values)}", *shown, *rest)


def stolen() -> float:
    """Seconds that the host took of all CPUs so far, in hundredths."""
    return int(Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def observed(program: Path, threads: int, runs: int) -> tuple[Seen, str]:
    """What was seen in so many runs, and what the program says of itself."""
    seen = Seen()
    with subprocess.Popen(
        [program, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as moving:
        assert moving.stdin and moving.stdout
        moving.stdout.readline()
        signal = f"mem:{moving.pid}:moving_page:moved"
        command = [TAILSCOPE, "observe", "--quiet", "--json", "--no-pauses", "--signal", signal]
        for _ in range(runs):
            # Where the program has all CPUs, no two samples may be good enough: exit code 3.
            timed = [*command, "--duration", "20ms"]
            before, known = stolen(), len(seen.longest)
            done = subprocess.run(timed, capture_output=True, text=True, check=False)
            seen.add(json.loads(done.stdout))
            late = (longest for longest in seen.longest[known:] if longest > LONGEST)
            seen.late += [(longest, stolen() - before) for longest in late]
        moving.stdin.close()
        return seen, moving.stdout.read().strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    runs = parser.parse_args().runs
    rows = []
    print(machine(), f"load average {os.getloadavg()[0]:.1f} before", sep="; ")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "moving"
        source = ROOT / "tests" / "c" / "moving.c"
        subprocess.run(["cc", "-O2", "-pthread", "-o", program, source], check=True)
        for threads in (1, 8, 64):
            before, began = stolen(), time.monotonic()
            seen, said = observed(program, threads, runs)
            rows += [(str(threads), *row) for row in seen.rows()]
            print(
                f"{threads} threads: {said}; the host took {stolen() - before:.2f} s of the CPUs' "
                f"{(time.monotonic() - began) * (os.cpu_count() or 1):.0f}"
            )
            for longest, taken in seen.late:
                print(f"  a stop of {longest:,.0f} µs, in a run in which it took {taken:.2f} s")
    head = ("threads that count", "way", "runs", "p50, µs", "p90", "p99", "max", "over 1,000")
    print("", table((*head, "in vain", "not moved"), rows), sep="\n")


if __name__ == "__main__":
    main()
