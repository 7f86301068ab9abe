"""Does `record --overhead` hold its budget, and does it use it?

Real servers under a steady load, and a program without a server, are recorded with a budget. The
recorder itself measures what it costs: it compares the program's CPU time for the same work with
it and without it. Two figures count for each program: the upper end of that measurement, and the
share of the time that was recorded. The best share is the budget over the slow-down that was
measured while the recorder was attached.

    .venv/bin/python bench/overhead.py                     five programs, five minutes each
    .venv/bin/python bench/overhead.py --seconds 60 --only nginx     nothing is written
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, Bar, Result, at_least, at_most, bars_table, table

sys.path.insert(0, str(ROOT / "lab"))

from proof.jvm import JvmHttp
from proof.machine import TAILSCOPE, children, cpu_ns, end, folder, running, until
from proof.postgres import Postgres
from proof.servers import Memcached, Nginx

SERVERS = {"memcached": Memcached, "nginx": Nginx, "postgresql": Postgres, "jvm": JvmHttp}
#: A program that is busy all the time, and what a span of it is.
BATCH = (["gzip", "-c", "/dev/zero"], "uprobe:libc.so.6:read")
BUDGET = 0.01


def works(pid: int) -> None:
    """Waits until a program, or what it has started, has used some CPU time from now on."""

    def used() -> int:
        return sum(cpu_ns(one) for one in [pid, *children(pid)])

    before = used()
    until(lambda: used() > before + 50_000_000, "it works", 60)


@contextmanager
def loaded(name: str, seconds: int) -> Iterator[tuple[int, str]]:
    """A program at work for this time: its pid, and the source of its spans."""
    if name == "batch":
        command, span = BATCH
        with running(command) as program:
            works(program.pid)
            yield program.pid, span
        return
    with SERVERS[name]("none") as server:
        load = [str(word) for word in server.load(seconds + 30)]
        offered = subprocess.Popen(load, stdout=subprocess.DEVNULL, cwd=server.folder)
        try:
            works(server.pid)
            yield server.pid, "request"
        finally:
            end(offered)


def recorded(name: str, seconds: int) -> dict[str, Any]:
    """What the ledger says of a recording with the budget."""
    with loaded(name, seconds) as (pid, span), folder() as temporary:
        ledger = temporary / "ledger"
        words = ["-p", pid, "--span", span, "-d", f"{seconds}s", "--overhead", f"{BUDGET:%}"]
        command = [TAILSCOPE, "record", "-q", "-o", ledger, *words]
        subprocess.run([str(word) for word in command], check=True)
        said = json.loads(Path(ledger / "ledger.json").read_text())
    found = said["overhead"]
    return found | {"share": found["attached_ns"] / found["whole_ns"], "rows": said["rows"]}


def interval(found: list[float] | None) -> str:
    """`0.82 % (0.60 to 1.04)`."""
    if found is None:
        return "not known"
    value, low, high = (100 * figure for figure in found)
    return f"{value:.2f} % ({low:.2f} to {high:.2f})"


def judged(name: str, found: dict[str, Any]) -> Iterator[Bar]:
    """Whether the budget was held, and used."""
    if not (measured := found["measured"]):
        yield Bar(f"{name}: measured", "a figure", "none", held=False)
        return
    yield at_most(
        f"{name}: upper end of the overhead", 1.2 * BUDGET * 100, 100 * measured[2], "%", 2
    )
    slowdown = measured[0] / found["share"]
    best = min(0.9, BUDGET / slowdown) if slowdown > 0 else 0.9
    yield at_least(f"{name}: share of the best share", 0.8, found["share"] / best, "", 2)


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--only", choices=[*SERVERS, "batch"], help="one program; nothing is written"
    )
    parser.add_argument("--seconds", type=int, default=300, help="how long each is recorded")
    args = parser.parse_args()
    result = Result("overhead", "Recording within a budget of overhead")
    rows = []
    for name in [args.only] if args.only else [*SERVERS, "batch"]:
        found = recorded(name, args.seconds)
        result.figures[name] = found
        result.bars += judged(name, found)
        share = f"{100 * found['share']:.1f} %"
        told = (interval(found[key]) for key in ("predicted", "measured"))
        rows.append((name, share, str(found["phases"]), *told, f"{found['rows']:,}"))
        print(*rows[-1], sep=" | ", flush=True)
    head = ("program", "recorded", "phases", "predicted", "measured", "spans")
    result.say(f"A budget of {BUDGET:.0%}", table(head, rows))
    held = sum(bar.held for bar in result.bars)
    result.summary = f"{held} of {len(result.bars)} bars hold"
    if args.only:
        print(bars_table(result.bars))
    else:
        result.write()


if __name__ == "__main__":
    main()
