"""Plants faults in real servers and holds what Tailscope says against what is true.

Measures every cell of faults × servers (about 35 s each, and again where that was spoiled or the
fault too small), writes bench/results/MACHINE/proof.json after each, and prints the page at the
end. Needs root, two CPUs, and a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from harness import Result, commit, known
from render import page

from proof import cell, table
from proof.faults import FAULTS, planted_in
from proof.judge import judge
from proof.machine import LAB, PROGRAMS, ROOT, TAILSCOPE, ProofError, folder
from proof.servers import SERVERS

#: Beside a cell's two ledgers: how they were measured.
KEPT = "measured.json"

EXAMPLES = """\
examples:
  make proof
  make proof PROOF="--only memcached:hog,redis:* --seconds 20 --output /tmp/proof"
  make proof PROOF=--resume                 measures the cells that proof.json lacks
  make proof PROOF="--ledgers /tmp/l --measure --resume --minutes 4"    then the rest, then:
  make proof PROOF="--ledgers /tmp/l --judge"
"""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="make proof",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="*:*", help="cells, SERVER:FAULT with * and commas")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of a cell's phases")
    parser.add_argument("--once", action="store_true", help="no larger fault, no second attempt")
    parser.add_argument("--resume", action="store_true", help="keep the cells that are measured")
    parser.add_argument("--ledgers", type=Path, metavar="DIR", help="keep each cell's two ledgers")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--measure", action="store_true", help="measure into --ledgers, judge later")
    part.add_argument("--judge", action="store_true", help="judge what --ledgers has")
    parser.add_argument("--minutes", type=float, help="begin no further cell after so long")
    parser.add_argument(
        "--output",
        type=Path,
        default=ROOT / "bench" / "results",
        help="writes OUTPUT/MACHINE/proof.json; default: bench/results",
    )
    parser.add_argument("--list", action="store_true", help="the cells, without measuring")
    args = parser.parse_args()
    if (args.measure or args.judge) and not args.ledgers:
        parser.error("--measure and --judge need --ledgers")
    return args


def chosen(patterns: str) -> Iterator[tuple[str, str]]:
    """The cells that apply and match one of the patterns, by server, then by fault."""
    for server, kind in SERVERS.items():
        for fault in FAULTS:
            wanted = any(fnmatch(f"{server}:{fault}", one) for one in patterns.split(","))
            if wanted and fault not in kind.lacks:
                yield server, fault


def main() -> int:
    """Measure, judge, write; 0 done (whatever the verdicts), 2 wrong usage, 3 it can't be done."""
    args = arguments()
    cells = list(chosen(args.only))
    if args.list:
        print("\n".join(":".join(one) for one in cells))
        return 0
    if not cells:
        print(f"proof: no cell matches {args.only}; --list has them all", file=sys.stderr)
        return 2
    if problem := obstacle(cells):
        print(f"proof: {problem}", file=sys.stderr)
        return 3
    # A polite end unwinds every block, and each puts back what it changed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    result = Result("proof", "The proof", command=command())
    found: table.Cells = known("proof", args.output).get("figures", {}).get("cells", {})
    began = time.monotonic()
    for number, (server, fault) in enumerate(cells, 1):
        key = f"{server}:{fault}"
        if args.minutes is not None and time.monotonic() - began > args.minutes * 60:
            break
        if args.measure and args.resume and (kept(args, server, fault) / KEPT).exists():
            continue
        if not args.measure and args.resume and "error" not in found.get(key, {"error": ""}):
            continue
        if one := prove(server, fault, args):
            found[key] = one
            print(f"proof: {number}/{len(cells)} {key}: {told(one)}", file=sys.stderr)
            write(args.output, result, found)
    if result.sections:
        print(page(result.stored()), end="")
    return 0


def obstacle(cells: Sequence[tuple[str, str]]) -> str | None:
    """Why these cells can't be measured here."""
    if os.geteuid() != 0:
        return "recording and planting need root: sudo make proof"
    if os.cpu_count() == 1:
        return "it takes two CPUs: one for the server, one for load and recorder"
    needed = [TAILSCOPE, LAB, PROGRAMS / "loopbench"]
    if any(server == "jvm" for server, _ in cells):
        needed.append(PROGRAMS / "java" / "HttpBench.class")
    missing = [str(path) for path in needed if not path.exists()]
    return f"nothing is built ({', '.join(missing)} missing): make proof" if missing else None


def prove(server: str, fault: str, args: argparse.Namespace) -> dict[str, Any] | None:
    """One cell: measured and judged, or why it could not be; None if it was only measured."""
    with ExitStack() as stack:
        where = (
            kept(args, server, fault) if args.ledgers else stack.enter_context(folder()) / "cell"
        )
        begin = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "load": os.getloadavg()[0]}
        begin |= {"seconds": args.seconds, "commit": commit()}
        try:
            if args.judge and not (where / KEPT).exists():
                return None
            if not args.judge:
                where.parent.mkdir(parents=True, exist_ok=True)
                measure = cell.attempt if args.once else cell.measure
                about = begin | measure(server, fault, args.seconds, where)
                (where / KEPT).write_text(json.dumps(about))
                print(f"proof: {server}:{fault} is measured", file=sys.stderr)
            if args.measure:
                return None
            about = json.loads((where / KEPT).read_text())
            return about | judge(planted_in(server, fault), where)
        except ProofError as error:
            return begin | {"error": str(error)}


def kept(args: argparse.Namespace, server: str, fault: str) -> Path:
    """Where a cell's ledgers are kept."""
    return args.ledgers / f"{server}-{fault}"


def told(one: dict[str, Any]) -> str:
    """A cell's verdict in a line."""
    if "error" in one:
        return f"FAILED: {one['error']}"
    line = f"top {'✓' if one['top'] else '✗'} ({table.ranking(one)} of "
    line += f"{table.interval(one['p99_ns'])} µs)"
    if "held" in one:
        line += f"; held {'✓' if one['held'] else '✗'}: predicted "
        line += table.interval(one["predicted_ns"])
    return line + f", without it {table.interval(one['calm_p99_ns'])}"


def command() -> str:
    """The command line, as the Makefile takes it."""
    options = shlex.join(sys.argv[1:])
    return f"make proof PROOF={shlex.quote(options)}" if options else "make proof"


def write(output: Path, result: Result, found: table.Cells) -> None:
    """All cells so far, in the servers' and faults' order; of the day of the latest."""
    order = [f"{server}:{fault}" for server, fault in chosen("*:*")]
    cells = {key: found[key] for key in order if key in found}
    result.date = max(cell["at"] for cell in cells.values())[:10]
    result.bars, result.sections = table.bars(cells), table.sections(cells)
    result.summary, result.figures = table.summary(cells), {"cells": cells}
    result.store(output)


if __name__ == "__main__":
    sys.exit(main())
