"""What hardware counters add to a span's begin and end, in C and in Rust, in instructions.

Few virtual machines have counters, so this is measured in the emulated arm64 guest, whose clock
counts instructions: 1 ns is one. It holds for the number of instructions, and says nothing of how
long they take (on x86-64 a rdpmc alone takes some 20 to 30 cycles). A span with a hundred empty
spans in it takes a hundred times a begin and an end; the least of many has met no interrupt.

    .venv/bin/python bench/counter_cost.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import duckdb
from harness import ROOT, Result, table

sys.path.insert(0, str(ROOT / "lab" / "guests"))
from guest import boot
from guest.kernels import KERNELS
from guest.session import Session

EVENTS = ("instructions", "cycles", "r23", "r24", "r3c", "r0")
#: They last so long that the recorder has looked meanwhile: memory for rows is new only at first.
SPANS, EMPTY, NAP_US = 150, 100, 2000


#: The programs that make empty spans, by SDK.
PROGRAMS = {
    "C": f"countbench --empty --spans {SPANS} --nap-us {NAP_US}",
    "Rust": f"instructions empty {SPANS} {NAP_US}",
}


def least(session: Session, sdk: str, counters: tuple[str, ...]) -> float:
    """Instructions of a begin and an end, with so many counters."""
    option = f"--counters {','.join(counters)}" if counters else ""
    script = (
        "export TAILSCOPE_PATIENCE_MS=60000; "
        f"tailscope record -q --overwrite -o /tmp/cost {option} -- {PROGRAMS[sdk]} && "
        "rm -rf /share/cost && cp -r /tmp/cost /share"
    )
    session.shell(script, 120).clean()
    files = str(session.share / "cost" / "**" / "*.parquet")
    with duckdb.connect() as engine:
        engine.read_parquet(files).create_view("spans")
        for counter in counters[:1]:
            unknown = f"SELECT count(*) FROM spans WHERE {counter} IS NULL"
            if engine.execute(unknown).fetchall() != [(0,)]:
                sys.exit(f"{counter} was not counted")
        sql = "SELECT min(wall_ns) FILTER (span = 'outer'), count(*) FROM spans"
        ((wall_ns, spans),) = engine.execute(sql).fetchall()
    if spans != SPANS * (EMPTY + 1):
        sys.exit(f"{spans} of {SPANS * (EMPTY + 1)} spans were recorded")
    return wall_ns / EMPTY


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="arm64-6.12", help="of the guest (%(default)s)")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    kernel = KERNELS[args.kernel]
    result = Result("counter_cost", "What counters add to a span's begin and end")
    with (
        tempfile.TemporaryDirectory() as share,
        Session(kernel, boot.prepare(kernel), Path(share)) as session,
    ):
        session.run("sysctl", "-w", "kernel.perf_user_access=1").clean()
        found = {
            sdk: {n: least(session, sdk, EVENTS[:n]) for n in (0, 1, 2, 4, 6)} for sdk in PROGRAMS
        }
    for sdk, costs in found.items():
        rows = [(str(n), f"{cost:.0f}", f"{cost - costs[0]:+.0f}") for n, cost in costs.items()]
        result.say(
            f"instructions of a kept span's begin and end, SDK for {sdk}, guest {args.kernel}",
            table(("counters", "instructions", "more than without"), rows),
        )
    more = found["C"][2] - found["C"][0]
    result.say(
        "What two counters mean for the bar of 60 ns",
        f"In C {more:.0f} instructions in begin and end together, four of which read a register. "
        f"Within 60 ns they have to pass at {more / 60:.1f} a ns: {more / 60 / 3:.1f} a cycle at "
        f"3 GHz, {more / 60 / 2:.1f} at 2 GHz. This guest knows no cycles: whether the bar holds "
        "is not known. `sdk_cost.py` prints ns where a PMU is; it has met no such machine so far.",
    )
    result.figures = {
        f"{sdk} {n}": cost for sdk, costs in found.items() for n, cost in costs.items()
    }
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
