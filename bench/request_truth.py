"""Is where `record --span request` says that time went what the servers themselves wrote down?

Each server of `lab/truth/kinds.py` notes for each request how long threads worked for it, when
another server had it, and when it slept; the rest is queue. A request is right if each of the four
is within 5 % of its wall time. Some moments the truth knows only to an interval: the data's arrival
lies between the client's two clocks around its send, and a server may name a doubt. Within the
interval, the value nearest to the recorded one counts. The server runs before all ordinary threads
of this machine.

    .venv/bin/python bench/request_truth.py                        all kinds, a minute each
    .venv/bin/python bench/request_truth.py --only pool-2 --rounds 1     nothing is written
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from harness import ROOT, Bar, Result, table

sys.path.insert(0, str(ROOT / "lab"))

import duckdb
from proof.machine import PROGRAMS, TAILSCOPE, ProofError, end, folder, serves
from proof.ports import free_port
from thirdparty.built import Lacking
from thirdparty.client import BEFORE_OTHERS
from thirdparty.recording import recording
from truth.clients import load, warm_up
from truth.compare import PARTS, QUERY, Compared, compare, summary, worst
from truth.kinds import KINDS, Kind

#: The share of requests of which all is right.
RIGHT = 0.95


def start(stack: ExitStack, command: list[str], port: int, said: Path) -> subprocess.Popen:
    """A server that ends with the stack; what it prints goes to a file."""
    output = stack.enter_context(said.open("w"))
    words = [*BEFORE_OTHERS, *command]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output)
    stack.callback(end, process)
    serves(process, port)
    return process


def measure(kind: Kind, requests: int, seed: int, tailscope: Path) -> list[Compared]:
    """Every request of a load, with what the ledger says less the truth."""
    port, backend = free_port(), free_port()
    with folder() as temporary, ExitStack() as stack:
        behind = [str(PROGRAMS / "slowbackend"), "--port", str(backend)]
        start(stack, behind, backend, temporary / "backend")
        said, ledger = temporary / "truth", temporary / "ledger"
        server = start(stack, kind.command(port, backend), port, said)
        warm_up(port, kind.mix, kind.connections, first=requests)
        with recording(tailscope, [server.pid], ledger, "--span", "request"):
            began = load(port, kind.mix, requests, kind.connections, seed)
        end(server)
        with duckdb.connect() as engine:
            files = str(ledger / "**" / "*.parquet")
            engine.read_parquet(files, hive_partitioning=False).create_view("spans")
            rows = engine.execute(QUERY).fetchall()
        if len(rows) != requests:
            raise ProofError(f"{len(rows)} rows of {requests} requests")
        return compare(rows, said.read_text(), began)


def main() -> None:
    """Measures, prints each kind as it is known, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="some kinds; nothing is written")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    parser.add_argument("--requests", type=int, default=1000, help="of each round")
    parser.add_argument(
        "--tailscope", type=Path, default=TAILSCOPE, help="the program; default: the installed one"
    )
    args = parser.parse_args()
    chosen = args.only.split(",") if args.only else list(KINDS)
    if unknown := set(chosen) - set(KINDS):
        sys.exit(f"there is no kind {', '.join(sorted(unknown))}: they are {', '.join(KINDS)}")
    result = Result("request_truth", "Where the time of requests went, beside the servers' truth")
    lines, wrong = [], []
    for name in chosen:
        found: list[Compared] = []
        try:
            for seed in range(1, args.rounds + 1):
                found += measure(KINDS[name], args.requests, seed, args.tailscope)
        except Lacking as reason:
            sys.exit(f"{name}: {reason}")
        shares = summary(found)
        result.figures[name] = shares
        figures = [f"{100 * shares[part]:.1f}" for part in ("wall", *PARTS, "parts")]
        lines.append((KINDS[name].title, str(len(found)), *figures))
        print(" | ".join(lines[-1]), flush=True)
        wrong.append(f"{KINDS[name].title}:\n\n{worst(found)}")
        right = shares["parts"]
        bar = (f"{name}: all parts right", f"{RIGHT:.0%}", f"{right:.1%}", right >= RIGHT)
        result.bars.append(Bar(*bar))
    head = ("server", "requests", "wall, %", *(f"{part}, %" for part in PARTS), "all parts, %")
    result.say("Requests that are right", table(head, lines))
    result.say("Those that are furthest off", "\n\n".join(wrong))
    held = sum(bar.held for bar in result.bars)
    least = min(shares["parts"] for shares in result.figures.values())
    result.summary = (
        f"time went where the server says, requests of the worst kind: {100 * least:.1f} %; "
        f"kinds that hold: {held} of {len(chosen)}"
    )
    if not args.only:
        result.write()


if __name__ == "__main__":
    main()
