"""What ts_span_begin + ts_span_end cost, in ns: no recorder, row not kept, row kept; and row kept
with two hardware counters, where this machine has some (elsewhere counter_cost.py counts
instructions).

One process measures itself; recorders come and go around it. In each round every kind has one
batch (a span, an empty system call, a uprobe pair, a uprobe on a nop), so all kinds meet the same
machine. Rounds are apart by a pause, so that the recorder, which looks every 50 ms, keeps up: a row
for which there is no room would be cheaper than one that is written.

    .venv/bin/python bench/sdk_cost.py
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import (
    SERVER_CPU,
    SPARE_CPU,
    Bench,
    Recording,
    Result,
    at_most,
    bench,
    lost,
    spread,
    table,
)

ROOT = Path(__file__).resolve().parent.parent
# A share of 1 in a million: a span's end draws a number and writes nothing.
STATES: dict[str, list[str] | None] = {"none": None, "not kept": ["--keep", "0.0001%"], "kept": []}
#: Besides, where a PMU is. To the program it is a recorder that keeps all.
COUNTED, COUNTERS = "kept, two counters", ["--counters", "instructions,cycles"]

#: The batches of each state and kind.
Seen = dict[str, dict[str, list[float]]]


class Program:
    """bench/c/sdk_cost.c, one order a line."""

    def __init__(self, bench: Bench, sdk: Path, cpu: int, batch: int) -> None:
        program = bench.compile("sdk_cost.c", sdk)
        self.start(bench, [program, "--cpu", str(cpu), "--batch", str(batch)])

    #: What it says of a recorder that keeps no row, and of one that keeps all.
    not_kept, kept = "not kept", "kept"

    def start(self, bench: Bench, command: list[str | Path]) -> None:
        """Runs it, with orders and answers in pipes."""
        self.process = bench.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def renew(self) -> None:
        """Prepares for the next recorder. This one needs nothing: it reports which one it found."""

    def measure(self, rounds: int, pause_us: int) -> dict[str, Any]:
        """Batches of every kind."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(rounds, pause_us, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def reach(self, state: str) -> None:
        """Makes spans until the program has noticed that the recorder came or went."""
        deadline = time.monotonic() + 10
        while (found := self.measure(1, 1000)["state"]) != state:
            if time.monotonic() > deadline:
                sys.exit(f"the program should find the recorder in state '{state}': '{found}'")
            time.sleep(0.05)


class RustProgram(Program):
    """sdk/rust/examples/span_cost.rs, which does not see whether rows are kept."""

    not_kept = kept = "metered"

    def __init__(self, bench: Bench, program: Path, cpu: int, batch: int) -> None:
        self.bench, self.command = bench, ["taskset", "-c", str(cpu), program, str(batch)]
        self.start(bench, self.command)

    def renew(self) -> None:
        """A new process: a recorder that it finds is not the one before."""
        self.process.kill()
        self.process.wait()
        self.start(self.bench, self.command)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--blocks", type=int, default=10, help="of each state, alternating")
    parser.add_argument("--rounds", type=int, default=200, help="in a block")
    parser.add_argument("--pause", type=int, default=5000, help="between rounds, in µs")
    parser.add_argument("--batch", type=int, default=200, help="operations in a batch")
    parser.add_argument("--sdk", type=Path, default=ROOT / "sdk" / "c", help="folder of the header")
    parser.add_argument(
        "--rust", type=Path, help="measure target/release/examples/span_cost in place of C"
    )
    parser.add_argument("--quick", action="store_true", help="a fifth of the blocks")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    blocks = max(2, args.blocks // 5) if args.quick else args.blocks
    language = "Rust" if args.rust else "C"
    result = Result("sdk_cost", f"What a span's begin and end cost in {language}")
    seen: Seen = {}
    rows_lost = 0
    with bench() as b:
        program = (
            RustProgram(b, args.rust, SERVER_CPU, args.batch)
            if args.rust
            else Program(b, args.sdk, SERVER_CPU, args.batch)
        )
        for _ in range(blocks):
            rows_lost += run_block(b, program, args, seen)
    report(result, seen, rows_lost)
    if not args.no_result and not args.rust:
        result.write()


def states(b: Bench) -> dict[str, list[str] | None]:
    """Those that this machine can be in."""
    doctor = subprocess.run(
        [b.tailscope, "doctor", "--json"], capture_output=True, text=True, check=True
    )
    counts = json.loads(doctor.stdout)["ladder"]["counters"]["rung"]
    return STATES | {COUNTED: COUNTERS} if counts else STATES


def run_block(b: Bench, program: Program, args: argparse.Namespace, seen: Seen) -> int:
    """Adds the batches of each kind in each state; how many rows were lost."""
    rows_lost = 0
    for state, options in states(b).items():
        recording = None
        program.renew()
        if options is not None:
            options = ["--span", "sdk", *options]
            recording = Recording(b, program.process.pid, options, SPARE_CPU)
        told = {"none": state, "not kept": program.not_kept}.get(state, program.kept)
        program.reach(told)
        block = program.measure(args.rounds, args.pause)
        if block.pop("state") != told:
            sys.exit(f"the recorder changed in the middle of a block of '{state}'")
        for kind, batches in block.items():
            seen.setdefault(state, {}).setdefault(kind, []).extend(batches)
        if recording:
            rows_lost += lost(recording.stop())
    return rows_lost


def report(result: Result, seen: Seen, rows_lost: int) -> None:
    """The table and the bars."""
    spans = {state: spread(kinds["span"]) for state, kinds in seen.items()}
    others = [kind for kind in seen["none"] if kind != "span"]
    rows = [
        (f"begin + end, {state}" + ("" if state != "none" else " (no recorder)"), s.text())
        for state, s in spans.items()
    ]
    for kind in others:
        rows.append((kind, spread([x for kinds in seen.values() for x in kinds[kind]]).text()))
    counted = f"{spans['kept'].count} batches of each state; rows lost: {rows_lost}."
    result.say(
        "ns each: median [quartiles] of batches", table(("kind", "ns"), rows) + "\n\n" + counted
    )
    if rows_lost:
        result.say("Not valid", "Rows were lost: a row without room is cheaper than one written.")
    result.bars = [
        at_most("SDK begin+end, row not kept", 40, spans["not kept"], "ns"),
        at_most("SDK begin+end, row kept", 70, spans["kept"], "ns"),
    ]
    result.bars[1].held &= not rows_lost
    medians = {state: f"{span.median:.1f}" for state, span in spans.items()}
    result.summary = (
        f"a span of the C SDK, ns: no recorder {medians['none']}, row not kept "
        f"{medians['not kept']}, kept {medians['kept']}"
    )
    if COUNTED in seen:
        pairs = zip(seen[COUNTED]["span"], seen["kept"]["span"], strict=True)
        more = spread([counted - kept for counted, kept in pairs])
        result.bars.append(at_most("two counters, more than without", 60, more, "ns"))
        result.bars[2].held &= not rows_lost
    result.figures = {
        "rows_lost": rows_lost,
        **{s: vars(spread(k["span"])) for s, k in seen.items()},
    }


if __name__ == "__main__":
    main()
