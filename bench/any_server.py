"""Is what is recorded of servers that nobody prepared what their clients see?

Each server runs under the lab's load generator, with connections that are kept and with one for
each request, while `tailscope record` records it. Clients' latencies are those without the
generator's own delays (`lab/thirdparty/client.py`); the network path is measured on an empty server
in the same run. The verdicts are defined in `lab/thirdparty/verdict.py`.

    .venv/bin/python bench/any_server.py                           all servers, about ten minutes
    .venv/bin/python bench/any_server.py --only asyncio,go-mutex   some, nothing written
    .venv/bin/python bench/any_server.py --requests                by --span request
    .venv/bin/python bench/any_server.py --requests --load wrk     under wrk or h2load
    .venv/bin/python bench/any_server.py --list                    which there are

What it needs besides Debian's own test packages: scripts/setup --for-servers.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from harness import ROOT, Bar, Result, table

sys.path.insert(0, str(ROOT / "lab"))

from proof.machine import TAILSCOPE, ProofError
from thirdparty.built import Lacking
from thirdparty.case import FRESH, KEPT, Case
from thirdparty.measure import Cell, cell, path_ns
from thirdparty.others import OTHERS
from thirdparty.outside import GENERATORS
from thirdparty.own import OWN
from thirdparty.verdict import text

CASES: dict[str, type[Case]] = OWN | OTHERS
REQUESTS = ("--span", "request")
ONE_THREAD = ("--span", "syscall:ready..send")
HEAD = ("server", "connections", "requests", "accounted for", "p50", "recorded", "p99", "recorded")


def line(found: Cell) -> tuple[str, ...]:
    """A cell as a line of the table."""
    client, recorded = found.client, found.recorded
    losses = ", ".join(f"{count} {name}" for name, count in recorded.losses.items())
    accounted = f"{recorded.rows}" + (f" + {losses}" if losses else "")
    figures = (client.p50_ns, recorded.p50_ns, client.p99_ns, recorded.p99_ns)
    verdict = found.verdict.word + (f": {found.verdict.why}" if found.verdict.why else "")
    named = (found.title, found.mode, str(client.requests), accounted)
    return (*named, *(text(ns) for ns in figures), verdict)


def main() -> None:
    """Measures, prints each line as it is known, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="some servers; nothing is written")
    parser.add_argument("--list", action="store_true", help="print the servers' names")
    parser.add_argument("--requests", action="store_true", help="record with --span request")
    parser.add_argument("--load", choices=list(GENERATORS), help="in the lab's generator's place")
    parser.add_argument("--seconds", type=float, default=5.0, help="of load, for each cell")
    parser.add_argument("--ledgers", type=Path, help="keep the ledgers in this folder")
    parser.add_argument(
        "--tailscope", type=Path, default=TAILSCOPE, help="the program; default: the installed one"
    )
    args = parser.parse_args()
    if args.list:
        print("\n".join(f"{name:20} {case.title}" for name, case in CASES.items()))
        return
    generator = GENERATORS[args.load]() if args.load else None
    # A case with a load of its own speaks another protocol.
    known = [name for name in CASES if not generator or CASES[name].load is Case.load]
    modes = generator.modes if generator else (KEPT, FRESH)
    chosen = args.only.split(",") if args.only else known
    if unknown := set(chosen) - set(known):
        of = f" that {args.load} can ask" if generator else ""
        sys.exit(f"no server{of}: {', '.join(sorted(unknown))}; --list shows which there are")
    if args.ledgers:
        args.ledgers.mkdir(parents=True, exist_ok=True)
    name, options = ("any_server", ONE_THREAD)
    if args.requests:
        name, options = "any_server_requests", REQUESTS
    if args.load:
        name += f"_{args.load}"
    result = Result(name, "What is recorded of servers that nobody prepared")
    paths = {mode: path_ns(mode, args.seconds, generator) for mode in modes}
    told = ", ".join(f"{mode} {text(ns)}" for mode, ns in paths.items())
    print(f"network path: {told}", flush=True)
    cells, absent = [], []
    for name in chosen:
        for mode in [mode for mode in CASES[name].modes if mode in modes]:
            try:
                about = (args.seconds, paths[mode], args.ledgers, args.tailscope, options)
                found = cell(CASES[name], mode, *about, generator)
            except (Lacking, ProofError) as error:
                absent.append(f"{name}, {mode}: {error}")
                print(absent[-1], flush=True)
                continue
            cells.append(found)
            print(" | ".join(line(found)), flush=True)
    wrong = sum(not found.verdict.holds for found in cells)
    result.bars.append(Bar("cells that are wrong without a word", "0", f"{wrong}", wrong == 0))
    result.bars.append(Bar("cells that could not be measured", "0", f"{len(absent)}", not absent))
    result.say("Cells", table((*HEAD, "verdict"), [line(found) for found in cells]))
    result.say("Not measured", "\n".join(f"- {one}" for one in absent) or "None.")
    result.say("Network path", f"Less than the client's latency by up to: {told}.")
    result.summary = f"{len(cells) - wrong} of {len(cells)} cells are right, or say what they lack"
    result.figures = {"path_ns": paths, "cells": [c.json() for c in cells]}
    if not args.only:
        result.write()


if __name__ == "__main__":
    main()
