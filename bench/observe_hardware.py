"""What virtual machines can't show of Shim's experiments: for a machine that has the hardware.

Each part says what it lacks where it can't run, and the exit code is 3 if none could. It was
written on a machine where none can: so it is untried, and its figures have to be doubted first.

- smt: what an observer takes on the program's own core, beside one on another core
- counters: instructions by cycles of five programs, over the methods that they are in
- clock: the core's clock, in cycles a cycle of the machine's clock, while a program begins to run
- prefetchers: the same as smt's second half with Intel's prefetchers off (MSR 0x1a4, which is put
  back at the end); only if asked for by --only prefetchers, on bare metal, after `modprobe msr`

    .venv/bin/python bench/observe_hardware.py
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from harness import SERVER_CPU, Bench, Result, bench, table
from observe_cost import METHODS, effect, instrumented, observed, running

PERIODS = (600, 1200, 2500, 5000, 10_000)
PREFETCHERS = 0x1A4
#: The second level's two, the first level's two, by the low four bits.
ALL_OFF = 0xF


class Missing(Exception):
    """What this machine lacks for a part."""


def sibling(cpu: int) -> int:
    """Another hardware thread of a CPU's core."""
    listed = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    cpus = set()
    for part in listed.strip().split(","):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    others = cpus - {cpu}
    if not others:
        raise Missing(f"CPU {cpu} is the only hardware thread of its core")
    return min(others)


def elsewhere(cpu: int) -> int:
    """A CPU of another core."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    for other in sorted(os.sched_getaffinity(0) - {cpu}):
        if path.read_text() != Path(str(path).replace(f"cpu{cpu}/", f"cpu{other}/")).read_text():
            return other
    raise Missing(f"there is no CPU of another core than CPU {cpu}'s")


def taken(bench: Bench, seconds: int, cpu: int) -> list[list[str]]:
    """What an observer on a CPU takes from each program at each period."""
    program = instrumented(bench, "edge")
    rows = []
    for name in METHODS:
        with running(bench, [program, name, 600, SERVER_CPU]) as pid:
            signals = ("--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:edge")
            where = ("--cpu", cpu, "--duration", f"{seconds}s")
            seen = [observed(bench, *signals, *where, "--period", period) for period in PERIODS]
            rows.append([name, *map(effect, seen)])
    return rows


def smt(bench: Bench, result: Result, seconds: int) -> None:
    """On the same core, and on another."""
    head = ("program", *(f"{period:,} cycles" for period in PERIODS))
    places = {"the same core": sibling(SERVER_CPU), "another core": elsewhere(SERVER_CPU)}
    for words, cpu in places.items():
        result.say(f"taken by an observer on {words}", table(head, taken(bench, seconds, cpu)))


def counted(bench: Bench, pid: int, *options: object) -> dict:
    """Instructions and cycles of a thread."""
    signals = ("--signal", f"counter:{pid}:instructions", "--signal", f"counter:{pid}:cycles")
    command = [bench.tailscope, "observe", "--quiet", "--json", *signals, "--duration", "100ms"]
    tried = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if tried.returncode == 3:
        raise Missing(tried.stderr.strip().removeprefix("tailscope: "))
    return observed(bench, *signals, *options)


def counters(bench: Bench, result: Result, seconds: int) -> None:
    """IPC by function, read across CPUs."""
    period = 100_000
    program = instrumented(bench, "edge")
    rows = []
    for name in METHODS:
        with running(bench, [program, name, 600, SERVER_CPU]) as pid:
            tag = ("--tag", f"channel:{pid}:edge")
            how = ("--period", period, "--duration", f"{seconds}s")
            seen = counted(bench, pid, *tag, *how)
        for function in seen["by_tag"]["functions"]:
            if function["per_second"] and function["per_second"][1] > 0:
                ipc = function["per_second"][0] / function["per_second"][1]
                share = f"{100 * function['share']:.1f} %"
                rows.append((name, str(function["name"]), share, f"{ipc:.3f}"))
    head = ("program", "function", "of the time", "instructions by cycles")
    result.say(f"instructions by cycles, every {period:,} cycles", table(head, rows))


def clock(bench: Bench, result: Result, seconds: int) -> None:
    """From a core that was idle to one that is busy."""
    program = instrumented(bench, None)
    with running(bench, [program, "matrix", 600, SERVER_CPU]) as pid:
        options = ("--period", 100_000, "--series", "10ms", "--duration", f"{seconds}s")
        seen = counted(bench, pid, *options)
    hz = seen["clock_hz"]
    rows = [
        (f"{1000 * slice_['at']:.0f}", f"{slice_['per_second'][1] / hz:.3f}")
        for slice_ in seen["series"]
        if slice_["per_second"]
    ]
    result.say("the core's clock", table(("ms", "cycles a cycle of the machine's clock"), rows))


@contextmanager
def without_prefetchers() -> Iterator[None]:
    """On all CPUs; as they were, however it ends."""
    with ExitStack() as undo:
        try:
            for cpu in sorted(os.sched_getaffinity(0)):
                file = os.open(f"/dev/cpu/{cpu}/msr", os.O_RDWR)
                undo.callback(os.close, file)
                (before,) = struct.unpack("<Q", os.pread(file, 8, PREFETCHERS))
                undo.callback(os.pwrite, file, struct.pack("<Q", before), PREFETCHERS)
                os.pwrite(file, struct.pack("<Q", before | ALL_OFF), PREFETCHERS)
        except OSError as refused:
            raise Missing(f"the prefetchers can't be switched here: {refused}") from refused
        yield


def prefetchers(bench: Bench, result: Result, seconds: int) -> None:
    """From another core, with them and without."""
    head = ("program", *(f"{period:,} cycles" for period in PERIODS))
    cpu = elsewhere(SERVER_CPU)
    with without_prefetchers():
        off = taken(bench, seconds, cpu)
    result.say("taken by an observer on another core, prefetchers off", table(head, off))
    result.say("prefetchers on", table(head, taken(bench, seconds, cpu)))


PARTS: dict[str, Callable[[Bench, Result, int], None]] = {
    "smt": smt,
    "counters": counters,
    "clock": clock,
    "prefetchers": prefetchers,
}


def main() -> None:
    """What can be measured, and what can't and why."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS)
    parser.add_argument("--quick", action="store_true", help="short runs")
    args = parser.parse_args()
    result = Result("observe_hardware", "What observing shows and takes on hardware")
    done = 0
    with bench() as it:
        for name in args.only or [part for part in PARTS if part != "prefetchers"]:
            try:
                PARTS[name](it, result, 1 if args.quick else 3)
                done += 1
            except Missing as why:
                print(f"{name}: not here: {why}", file=sys.stderr, flush=True)
    if not done:
        sys.exit(3)
    result.write()


if __name__ == "__main__":
    main()
