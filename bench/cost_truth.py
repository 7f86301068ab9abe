"""Whether `tailscope cost` measures the same twice, and whether its predictions come true.

Two calibrations with other work between them give how far each kind's figures lie apart. Then ten
command lines of perf, bpftrace and strace are predicted for real programs and verified on them.
Each program's progress is its read and write calls.

    .venv/bin/python bench/cost_truth.py
    .venv/bin/python bench/cost_truth.py --only calibrate     the two calibrations alone

Every miss is shown. A command line whose tool is not installed is left out, and named.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harness import ROOT, Bench, Result, at_least, at_most, bench, table

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
#: Programs without a server: one that makes system calls, one that computes, one that writes files.
PROGRAMS = {
    "dd": ["dd", "if=/dev/zero", "of=/dev/null", "bs=4k"],
    "sha256": ["sha256sum", "/dev/zero"],
    "gzip": ["sh", "-c", "exec gzip -c </dev/urandom >/dev/null"],
}
COMMANDS = [
    "perf record -e cpu-clock -F 99",
    "perf record -e cpu-clock -F 999",
    "perf record -e cpu-clock -F 4000 -g",
    "perf record -e syscalls:sys_enter_write",
    "perf stat -e raw_syscalls:sys_enter",
    "perf stat -e context-switches,task-clock",
    "bpftrace -e 'tracepoint:syscalls:sys_enter_write { @ = count(); }'",
    "bpftrace -e 'tracepoint:raw_syscalls:sys_enter { @[tid] = count(); }'",
    "bpftrace -e 'profile:hz:99 { @ = count(); }'",
    "strace -f -c",
]


def cost(*words: object) -> dict[str, Any]:
    """What `tailscope cost` prints as JSON."""
    command = [str(TAILSCOPE), "cost", *map(str, words), "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def calibrations(result: Result, file: Path) -> None:
    """Two calibrations, with a build's worth of other work between them."""
    runs = []
    for _ in range(2):
        runs.append(cost("calibrate", "--file", file, "--quiet"))
        subprocess.run(["sh", "-c", "head -c 300000000 /dev/zero | sha256sum"], capture_output=True)
    first, second = ({kind["kind"]: kind["ns"] for kind in run["kinds"]} for run in runs)
    rows, narrow, close = [], 0, 0
    for kind in first.keys() & second.keys():
        ns = second[kind]
        half = (ns["high"] - ns["low"]) / 2 / abs(ns["value"]) * 100
        apart = abs(ns["value"] / first[kind]["value"] - 1) * 100
        narrow += half <= 5
        close += half <= 5 and apart <= 10
        rows.append((kind, f"{ns['value']:.1f}", f"{half:.1f} %", f"{apart:.1f} %"))
    head = ("kind", "ns a hit", "half of the interval", "from the run before")
    result.say("Two calibrations", table(head, sorted(rows)))
    result.bars += [
        at_least("kinds with an interval of at most ± 5 %", 8, narrow, "kinds", 0),
        at_least("of these within 10 % of the run before", 8, close, "kinds", 0),
        at_most("a calibration takes", 11, runs[1]["seconds"], "s"),
    ]
    result.figures["calibrations"] = runs


def verified(b: Bench, file: Path, args: argparse.Namespace) -> list[tuple[str, ...]]:
    """Predicted beside measured, for each program and command line."""
    rows = []
    for name, program in PROGRAMS.items():
        process = b.start(program, stdout=subprocess.DEVNULL)
        for line in COMMANDS:
            if not shutil.which(line.split()[0]):
                rows.append((name, line, "not installed", "", ""))
                continue
            words = ("--file", file, "-p", process.pid, "--with", line, "--progress", "io:calls")
            told = cost("verify", *words, "--pairs", args.pairs, "--phase", f"{args.phase}ms")
            said = [told["prediction"]["slowdown"], (told["measured"] or {}).get("slowdown")]
            if None in said:
                rows.append((name, line, "not known", "", ""))
                continue
            predicted, measured = said
            meets = predicted["low"] <= measured["high"] and measured["low"] <= predicted["high"]
            rows.append((name, line, *map(interval, said), "yes" if meets else "no"))
        b.end(process)
    return rows


def interval(share: dict[str, float]) -> str:
    """`1.2 % (1.0 to 1.4)`."""
    value, low, high = (share[key] * 100 for key in ("value", "low", "high"))
    return f"{value:.2f} % ({low:.2f} to {high:.2f})"


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", choices=("calibrate", "verify"), help="one part")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of phases")
    parser.add_argument("--phase", type=int, default=500, help="ms of a phase")
    parser.add_argument("--quick", action="store_true", help="three short pairs, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.pairs, args.phase = 3, 200
    if not TAILSCOPE.exists():
        sys.exit("nothing is built: make build")
    result = Result("cost_truth", "What observing costs: measured twice, predicted and verified")
    with bench() as b, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cost.json"
        if args.only != "verify":
            calibrations(result, file)
        else:
            cost("calibrate", "--file", file, "--quiet")
        if args.only != "calibrate":
            rows = verified(b, file, args)
            head = ("program", "command", "predicted", "measured", "intervals meet")
            result.say("Predicted and verified", table(head, rows))
            known = [row for row in rows if row[-1]]
            met = sum(row[-1] == "yes" for row in known)
            result.bars.append(
                at_least("predictions that are met", 0.9, met / max(len(known), 1), "")
            )
            result.figures["verified"] = rows
    result.summary = "; ".join(f"{bar.what}: {bar.figure}" for bar in result.bars)
    if args.quick:
        print(result.summary)
    else:
        result.write()


if __name__ == "__main__":
    main()
