"""What hardware counters add to a span's begin and end, in C, Rust and Java, in instructions.

Few virtual machines have counters, so this is measured in the emulated arm64 guest, whose clock
counts instructions: 1 ns is one. It holds for the number of instructions, and says nothing of how
long they take (on x86-64 a rdpmc alone takes some 20 to 30 cycles). A span with a hundred empty
spans in it takes a hundred times a begin and an end; the least of many has met no interrupt. In
Java it is the least of 300,000 spans, by when HotSpot's compilers are done.

    make sdk-java && .venv/bin/python bench/counter_cost.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import duckdb
from harness import ROOT, Result, table

sys.path.insert(0, str(ROOT / "lab" / "guests"))
from guest import boot, java
from guest.kernels import KERNELS
from guest.session import Session

EVENTS = ("instructions", "cycles", "r23", "r24", "r3c", "r0")
EMPTY = 100
JAR = ROOT / "target" / "java" / "tailscope.jar"
CLASSES = ROOT / "target" / "java" / "bench"


@dataclass(frozen=True)
class Program:
    """One that makes so many spans with empty ones in them, and naps after each."""

    command: str
    #: They last so long that the recorder has looked meanwhile: memory for rows is new only at
    #: first. In Java, until most is compiled.
    spans: int
    nap_us: int
    #: What share of its spans may have null, until they are compiled.
    nulls: float = 0

    def __str__(self) -> str:
        return self.command.format(spans=self.spans, nap_us=self.nap_us)


PROGRAMS = {
    "C": Program("countbench --empty --spans {spans} --nap-us {nap_us}", 150, 2000),
    "Rust": Program("instructions empty {spans} {nap_us}", 150, 2000),
    "Java": Program(java.COMMAND + " tailscope.EmptySpans {spans} {nap_us}", 3000, 5000, 0.02),
}


def prepare_java(session: Session) -> None:
    """Java in the guest."""
    if not JAR.exists():
        sys.exit("there is no jar: make sdk-java")
    builder, sources = ROOT / "sdk" / "java" / "build", Path(__file__).parent / "java"
    subprocess.run([sys.executable, builder, JAR, sources, CLASSES], check=True)
    java.install(session, JAR, CLASSES)


def least(session: Session, sdk: str, counters: tuple[str, ...]) -> float:
    """Instructions of a begin and an end, with so many counters."""
    program = PROGRAMS[sdk]
    option = f"--counters {','.join(counters)}" if counters else ""
    script = (
        "export TAILSCOPE_PATIENCE_MS=60000; "
        f"tailscope record -q --overwrite --span sdk -o /tmp/cost {option} -- {program} && "
        "rm -rf /share/cost && cp -r /tmp/cost /share"
    )
    session.shell(script, 200).clean()
    files = str(session.share / "cost" / "**" / "*.parquet")
    with duckdb.connect() as engine:
        engine.read_parquet(files).create_view("spans")
        for counter in counters[:1]:
            unknown = f"SELECT avg(({counter} IS NULL)::INT) FROM spans"
            ((nulls,),) = engine.execute(unknown).fetchall()
            if nulls > program.nulls:
                sys.exit(f"{sdk}: {counter} was not counted in {nulls:.1%} of the spans")
        sql = "SELECT min(wall_ns) FILTER (span = 'outer'), count(*) FROM spans"
        ((wall_ns, spans),) = engine.execute(sql).fetchall()
    if spans != program.spans * (EMPTY + 1):
        sys.exit(f"{sdk}: {spans} of {program.spans * (EMPTY + 1)} spans were recorded")
    return wall_ns / EMPTY


def rows(costs: dict[int, float]) -> list[tuple[str, ...]]:
    """A table's, by the number of counters."""
    return [(str(n), f"{cost:.0f}", f"{cost - costs[0]:+.0f}") for n, cost in costs.items()]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernel", default="arm64-6.12", help="of the guest (%(default)s)")
    parser.add_argument("--sdk", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    kernel = KERNELS[args.kernel]
    result = Result("counter_cost", "What counters add to a span's begin and end")
    found: dict[str, dict[int, float]] = {}
    with (
        tempfile.TemporaryDirectory() as share,
        Session(kernel, boot.prepare(kernel), Path(share)) as session,
    ):
        session.run("sysctl", "-w", "kernel.perf_user_access=1").clean()
        if "Java" in args.sdk:
            prepare_java(session)
        for sdk in args.sdk:
            found[sdk] = {n: least(session, sdk, EVENTS[:n]) for n in (0, 1, 2, 4, 6)}
            result.say(
                f"instructions of a kept span's begin and end, SDK for {sdk}, guest {args.kernel}",
                table(("counters", "instructions", "more than without"), rows(found[sdk])),
            )
    rates = []
    for sdk, costs in found.items():
        a_ns = (costs[2] - costs[0]) / 60
        rates.append((sdk, f"{a_ns * 60:.0f}", f"{a_ns / 3:.1f}", f"{a_ns / 2:.1f}"))
    result.say(
        "What two counters mean for the bar of 60 ns",
        "Instructions of begin and end together, four of which read a register, and how many of "
        "them a cycle has to pass for 60 ns to hold:\n\n"
        + table(("SDK", "instructions", "a cycle at 3 GHz", "at 2 GHz"), rates)
        + "\n\nThis guest knows no cycles: whether the bar holds is not known. `sdk_cost.py` "
        "prints ns where a PMU is; it has met no such machine so far.",
    )
    more = (f"{costs[2] - costs[0]:+.0f} ({sdk})" for sdk, costs in found.items())
    result.summary = f"two counters, instructions a span: {', '.join(more)}; ns are not known"
    result.figures = {
        f"{sdk} {n}": cost for sdk, costs in found.items() for n, cost in costs.items()
    }
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
