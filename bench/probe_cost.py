"""What a span by two probes costs the program, in ns: bare, recorded, and by bpftrace.

One process runs pairs of USDT probes and calls of a function, in batches; who listens alternates
around it: nobody, empty kernel programs (what the kernel itself takes), programs of the least that
we know a span to take (the clock at both ends, a place of the thread's own, a row),
Tailscope, and bpftrace with the same two probes and a histogram of the time between them. `perf
trace` is not among them: it needs the kernel's uprobe_events file, and says nothing of causes.

    .venv/bin/python bench/probe_cost.py
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import (
    ROOT,
    SERVER_CPU,
    SPARE_CPU,
    Bar,
    Bench,
    Recording,
    Result,
    at_most,
    bench,
    lost,
    spread,
    table,
)
from places import probe_offsets, symbol_offset

EMPTY = ROOT / "target" / "release" / "examples" / "empty_uprobes"
#: The least that we know a span to take (floor.bpf.c), by name in the table.
FLOOR = "programs of the least that a span takes"
#: The same as a span: a time at the begin, a difference at the end, and somewhere to put it.
BPFTRACE = {
    "usdt": "usdt:{0}:bench:begin {{ @t[tid] = nsecs }} "
    "usdt:{0}:bench:end {{ @h = hist(nsecs - @t[tid]); delete(@t[tid]) }}",
    "call": "uprobe:{0}:probed_call {{ @t[tid] = nsecs }} "
    "uretprobe:{0}:probed_call {{ @h = hist(nsecs - @t[tid]); delete(@t[tid]) }}",
}
TAILSCOPE = {"usdt": "usdt:{0}:bench:begin..end", "call": "uprobe:{0}:probed_call"}


def offsets(program: Path) -> dict[str, list[str]]:
    """Where the probes are in the file: for each kind, as empty_uprobes wants them."""
    where = probe_offsets(program, "bench")
    call = symbol_offset(program, "probed_call")
    return {
        "usdt": [str(place) for name in ("end", "begin") for place in where[name]],
        "call": [f"r{call}", str(call)],
    }


class Program:
    """bench/c/probe_cost.c."""

    def __init__(self, b: Bench, batch: int, pause: int) -> None:
        self.path = b.compile("probe_cost.c")
        self.process = b.start(
            [self.path, str(SERVER_CPU), str(batch), str(pause)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def measure(self, rounds: int) -> dict[str, list[float]]:
        """Batches of both kinds."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(rounds, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


class Listener:
    """Somebody else who attaches, from when this returns."""

    def __init__(self, b: Bench, command: list[str | Path], ready: str) -> None:
        self.bench = b
        self.process = b.start(
            command,
            SPARE_CPU,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith(ready):
            sys.exit(f"{command[0]} did not start: {line}")

    def stop(self) -> dict[str, Any]:
        """Detaches; nothing is lost that anybody counts."""
        self.bench.end(self.process)
        return {"lost": {}}


def listeners(b: Bench, program: Program) -> dict[str, Callable[[str], Any] | None]:
    """Who listens, by the state's name: what starts them for a kind of probe."""
    places = offsets(program.path)
    path, pid = program.path, program.process.pid
    found: dict[str, Callable[[str], Any] | None] = {
        "nobody": None,
        "empty programs": lambda kind: Listener(b, [EMPTY, path, *places[kind]], "ready"),
        FLOOR: lambda kind: Listener(b, [EMPTY, "--floor", path, *places[kind]], "ready"),
        "tailscope": lambda kind: Recording(
            b, pid, ["--span", TAILSCOPE[kind].format(path)], SPARE_CPU
        ),
    }
    if shutil.which("bpftrace"):
        found["bpftrace"] = lambda kind: Listener(
            b, ["bpftrace", "-e", BPFTRACE[kind].format(path)], "Attaching"
        )
    return found


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--blocks", type=int, default=8, help="how often each state comes up")
    parser.add_argument("--rounds", type=int, default=60, help="batches a block")
    parser.add_argument("--batch", type=int, default=500, help="spans a batch")
    parser.add_argument("--pause", type=int, default=2000, help="µs between batches")
    parser.add_argument("--quick", action="store_true", help="two short blocks, nothing written")
    args = parser.parse_args()
    blocks, rounds = (2, 20) if args.quick else (args.blocks, args.rounds)
    if not EMPTY.exists():
        sys.exit("run first: cargo build --release -p tailscope-kernel --example empty_uprobes")
    result = Result("probe_cost", "What a span by two probes costs")
    with bench() as b:
        program = Program(b, args.batch, args.pause)
        seen: dict[tuple[str, str], list[float]] = {}
        above: dict[str, list[float]] = {"usdt": [], "call": []}
        floor: dict[str, list[float]] = {"usdt": [], "call": []}
        rows_lost = 0
        states = listeners(b, program)
        for _ in range(blocks):
            for kind in ("usdt", "call"):
                medians = {}
                for state, start in states.items():
                    listener = start(kind) if start else None
                    program.measure(3)
                    batches = program.measure(rounds)[kind]
                    seen.setdefault((kind, state), []).extend(batches)
                    medians[state] = spread(batches).median
                    if listener:
                        rows_lost += lost(listener.stop())
                above[kind].append(medians["tailscope"] - medians["empty programs"])
                floor[kind].append(medians[FLOOR] - medians["empty programs"])
    names = {"usdt": "two USDT probes", "call": "a call, entry and return"}
    rows = [(f"{names[kind]}, {state}", spread(ns).text()) for (kind, state), ns in seen.items()]
    result.say("ns a span: median [quartiles] of batches", table(("what", "ns"), rows))
    if "bpftrace" not in states:
        result.say("Left out", "bpftrace is not installed.")
    bars: list[Bar] = []
    for kind, what in names.items():
        bars.append(at_most(f"{what}: above empty programs", 150, spread(above[kind]), "ns"))
        bars[-1].held &= not rows_lost
        empty = spread(seen[kind, "empty programs"]).text(0)
        least = spread(floor[kind]).text(0)
        notes = [bars[-1].note, f"empty programs take {empty} ns"]
        notes.append(f"the least that a span takes is {least} ns above them")
        notes.append(f"{rows_lost} rows lost" if rows_lost else "")
        bars[-1].note = "; ".join(note for note in notes if note)
    result.bars = bars
    told = [
        f"{what} {spread(seen[kind, 'tailscope']).median:,.0f} "
        f"(empty programs {spread(seen[kind, 'empty programs']).median:,.0f})"
        for kind, what in names.items()
    ]
    result.summary = f"a span, ns: by {', by '.join(told)}"
    result.figures = {
        f"{kind}, {state}": vars(spread(ns)) for (kind, state), ns in seen.items()
    } | {"rows_lost": rows_lost}
    if args.quick:
        print("\n".join(f"{bar.what}: {bar.figure} (bar: {bar.bar})" for bar in bars))
    else:
        result.write()


if __name__ == "__main__":
    main()
