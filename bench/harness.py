"""What the measurements share: processes that end with the script, recordings, and robust figures.

Machines are never quite idle, so nothing here rests on one long run. What is compared alternates in
short phases, the comparison is made pair by pair, and what is reported is the median of the pairs
with its quartiles and a 95 % interval that assumes nothing about the noise.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine import ROOT, command, commit, machine, this_machine

RESULTS = ROOT / "bench" / "results"
SPARE_CPU = max(os.sched_getaffinity(0))
SERVER_CPU = min(os.sched_getaffinity(0))


# --- figures --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Spread:
    """A median with its quartiles and the 95 % interval of the median."""

    median: float
    lower_quartile: float
    upper_quartile: float
    low: float
    high: float
    count: int

    def text(self, digits: int = 1) -> str:
        """`median [quartiles]`."""
        return (
            f"{self.median:.{digits}f} "
            f"[{self.lower_quartile:.{digits}f}, {self.upper_quartile:.{digits}f}]"
        )

    def interval(self, digits: int = 1) -> str:
        """The interval of the median."""
        return f"{self.low:.{digits}f} to {self.high:.{digits}f}"


def spread(values: Sequence[float]) -> Spread:
    """Sums up; the interval of the median is between two order statistics (binomial)."""
    ordered = sorted(values)
    n = len(ordered)
    if n < 2:
        only = ordered[0] if ordered else math.nan
        return Spread(only, only, only, only, only, n)
    quartiles = statistics.quantiles(ordered, n=4, method="inclusive")
    if n > 500:
        below = max(0, math.floor(n / 2 - 1.96 * math.sqrt(n) / 2))
    else:
        below, mass = 0, 0.5**n
        while below < n // 2:
            mass += math.comb(n, below + 1) * 0.5**n
            if mass > 0.025:
                break
            below += 1
    return Spread(
        statistics.median(ordered),
        quartiles[0],
        quartiles[2],
        ordered[below],
        ordered[n - 1 - below],
        n,
    )


@dataclass
class Bar:
    """One line of the summary: what had to be reached, and what was."""

    what: str
    bar: str
    figure: str
    held: bool
    note: str = ""

    def verdict(self) -> str:
        """For the table."""
        return "yes" if self.held else "NO"


def at_most(what: str, limit: float, value: Spread | float, unit: str, digits: int = 1) -> Bar:
    """A bar that a figure must not exceed."""
    return _bar(what, limit, value, unit, digits, "at most")


def at_least(what: str, limit: float, value: Spread | float, unit: str, digits: int = 1) -> Bar:
    """A bar that a figure must reach."""
    return _bar(what, limit, value, unit, digits, "at least")


def _bar(what: str, limit: float, value: Spread | float, unit: str, digits: int, sense: str) -> Bar:
    middle = value.median if isinstance(value, Spread) else value
    held = middle <= limit if sense == "at most" else middle >= limit
    note = ""
    if isinstance(value, Spread) and value.low <= limit <= value.high:
        note = f"within the noise: 95 % interval {value.interval(digits)}"
    text = value.text(digits) if isinstance(value, Spread) else f"{value:.{digits}f}"
    return Bar(what, f"{sense} {limit:g} {unit}".rstrip(), f"{text} {unit}".rstrip(), held, note)


# --- tables ---------------------------------------------------------------------------------------


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table whose columns also line up in a terminal."""
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"

    rule = "| " + " | ".join("-" * w for w in widths) + " |"
    return "\n".join([line(cells[0]), rule, *[line(row) for row in cells[1:]]])


def bars_table(bars: Sequence[Bar]) -> str:
    """Bar, figure, held."""
    rows = [
        (b.what, b.bar, b.figure, b.verdict() + (f" ({b.note})" if b.note else "")) for b in bars
    ]
    return table(("what", "bar", "figure: median [quartiles]", "held"), rows)


# --- results --------------------------------------------------------------------------------------


@dataclass
class Result:
    """All that a script found; `write` stores it, and `bench/render` shows it."""

    name: str
    title: str
    bars: list[Bar] = field(default_factory=list)
    sections: list[tuple[str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    #: The figures for this result's line in bench/README.md; the bars' figures, if empty.
    summary: str = ""
    command: str = field(default_factory=command)
    #: Of the sources, and of the day, when the measurement starts.
    commit: str = field(default_factory=commit)
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))
    load: float = field(default_factory=lambda: os.getloadavg()[0])

    def say(self, heading: str, text: str) -> None:
        """A part of the report, printed as soon as it is known."""
        self.sections.append((heading, text))
        print(f"\n{heading}\n{text}", flush=True)

    def stored(self) -> dict[str, Any]:
        """What the file holds."""
        return {
            "name": self.name,
            "title": self.title,
            "machine": machine(),
            "commit": self.commit,
            "date": self.date,
            "command": self.command,
            "load": [round(self.load, 2), round(os.getloadavg()[0], 2)],
            "summary": self.summary,
            "bars": [asdict(bar) for bar in self.bars],
            "sections": self.sections,
            "figures": self.figures,
        }

    def write(self, folder: Path = RESULTS) -> None:
        """Stores it, and prints the bars."""
        if self.bars:
            print("\n" + bars_table(self.bars), flush=True)
        print(f"\nwrote {self.store(folder)}", flush=True)

    def store(self, folder: Path = RESULTS) -> Path:
        """Writes FOLDER/MACHINE/NAME.json."""
        path = folder / this_machine() / f"{self.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.stored(), indent=1, ensure_ascii=False) + "\n")
        return path


def known(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """What an earlier run stored on this machine; empty if there was none."""
    path = folder / this_machine() / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}


# --- processes ------------------------------------------------------------------------------------


def cpu_ns(pid: int) -> int:
    """CPU time of a process so far, all threads, up to this moment (not to the last tick)."""
    return time.clock_gettime_ns((~pid << 3) | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED)


class Bench:
    """A working folder, and processes that do not outlive the script."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tailscope-bench-"))
        self.processes: list[subprocess.Popen[str]] = []
        # Copies: a build under way elsewhere must not change what is measured, and a recorder
        # that others start on the lab's programs must not find these.
        self.tailscope = self.copy(ROOT / "target" / "release" / "tailscope")

    def copy(self, program: Path) -> Path:
        """A program of the build, under a path of its own."""
        if not program.exists():
            sys.exit(f"{program} is not there: run `make build` first")
        return Path(shutil.copy2(program, self.folder / program.name))

    def compile(self, source: str, sdk: Path = ROOT / "sdk" / "c") -> Path:
        """Builds bench/c/NAME.c as the lab's programs are built."""
        target = self.folder / Path(source).stem
        flags = [
            "-std=c11",
            "-D_GNU_SOURCE",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ]
        where = ["-isystem", str(sdk), "-isystem", str(ROOT / "lab" / "c")]
        code = ROOT / "bench" / "c" / source
        subprocess.run(["cc", *flags, *where, "-o", str(target), str(code)], check=True)
        return target

    def start(
        self,
        command: Sequence[str | Path],
        cpu: int | None = None,
        stdin: int | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
    ) -> subprocess.Popen[str]:
        """Starts a process, on one CPU if asked, to be ended with the script."""
        process = subprocess.Popen(
            [str(part) for part in command],
            text=True,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            # Recorders and the programs that they find: a socket of their own.
            env={**os.environ, "TAILSCOPE_SOCKET": str(self.folder / "sdk.sock")},
            preexec_fn=None if cpu is None else (lambda: os.sched_setaffinity(0, {cpu})),
        )
        self.processes.append(process)
        return process

    def end(self, process: subprocess.Popen[str], how: int = signal.SIGTERM) -> int:
        """Ends a process that this script started, and waits for it."""
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process in self.processes:
            self.processes.remove(process)
        return process.returncode

    def close(self) -> None:
        """Ends everything and removes the folder."""
        for process in reversed(list(self.processes)):
            self.end(process)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    """A bench that is cleaned up however the script ends."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    it = Bench()
    try:
        yield it
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        it.close()


class Recording:
    """A running recorder: it records from when this returns."""

    def __init__(
        self, bench: Bench, pid: int, options: Sequence[str], cpu: int | None = None
    ) -> None:
        self.bench = bench
        self.ledger = bench.folder / "ledger"
        command = [bench.tailscope, "record", "-p", str(pid), "-o", self.ledger, "--overwrite"]
        self.process = bench.start([*command, *options], cpu, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        # It says "recording ..." once the programs are attached and the process is watched.
        line = self.process.stderr.readline()
        if not line.startswith("recording"):
            sys.exit(f"the recorder did not start: {line}{self.process.stderr.read()}")
        self.stderr = self.process.stderr

    def stop(self) -> dict[str, Any]:
        """Ends the recording; returns what ledger.json says."""
        # What it says meanwhile is a line in ten seconds: it fits into the pipe.
        if self.bench.end(self.process, signal.SIGINT) != 0:
            sys.exit(f"the recorder failed: {self.stderr.read()}")
        self.stderr.close()
        return json.loads((self.ledger / "ledger.json").read_text())


def lost(ledger: dict[str, Any]) -> int:
    """Rows that were lost, of all kinds ("overdrawn" ones are there, only their books are off)."""
    return sum(ledger["lost"].get(kind, 0) for kind in ("ring_full", "region_full", "threads"))


def idle_cpu_share(begin: list[int], end: list[int]) -> float:
    """Which share of the time between two readings of `cpu_times` was idle."""
    gained = [b - a for a, b in zip(begin, end, strict=True)]
    return (gained[3] + gained[4]) / max(1, sum(gained[:8]))


def cpu_times(cpu: int) -> list[int]:
    """One CPU's line of /proc/stat."""
    for line in Path("/proc/stat").read_text().splitlines():
        if line.startswith(f"cpu{cpu} "):
            return [int(x) for x in line.split()[1:]]
    raise ValueError(f"no CPU {cpu}")
