"""What `record --stacks` costs a busy memcached, beside `record` alone and beside other profilers.

Short phases take turns on one server: nobody records; `record`; `record --stacks`; `perf record` of
the server at the same rate, with frame pointers and with copied stacks; bpftrace with stacks of
waits summed up in the kernel, where it is installed. Each is compared with the phases without a
recorder right before and after it, by throughput and by the server's CPU time a request. What a
recorder itself takes of a CPU is its own CPU time during the phase: names are read afterwards.

    .venv/bin/python bench/stacks_cost.py
    .venv/bin/python bench/stacks_cost.py --rate 997        more samples than by default
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow.parquet as parquet
from busy_server import CASES, SETTLE, Load, Phase, measure, under_load
from harness import SPARE_CPU, Bench, Recording, Result, at_least, at_most, bench, spread, table
from harness import cpu_ns as cpu_time

CASE = next(case for case in CASES if case.name == "request, memcached")
#: What bpftrace's offcputime does, of one process. The probe is in the thread that gets the CPU.
OFF_CPU = """
BEGIN { printf("begun\\n"); }
kprobe:finish_task_switch* {
    $before = (struct task_struct *)arg0;
    if ($before->tgid == PID) { @since[$before->pid] = nsecs; }
    if (@since[tid]) { @ns[kstack, ustack] = sum(nsecs - @since[tid]); delete(@since[tid]); }
}
"""
#: What is compared with what.
ALONE, STACKS = "record", "record --stacks"
#: The others have a phase in every fourth round: the difference between these two is small.
PEERS_EVERY = 4


@dataclass
class Taken:
    """What a recorder took: samples, and its own CPU time."""

    samples: int = 0
    cpu_ns: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Round:
    """A phase with a recorder, and the mean of those without around it."""

    name: str
    rate: float  # requests a second with ÷ without
    by_cpu: float  # CPU time a request without ÷ with
    added: float  # the server's CPU time, in shares of a CPU, at the same number of requests
    recorder: float  # the recorder's, in shares of a CPU
    samples: float  # a second


@contextlib.contextmanager
def counted(process: subprocess.Popen[str], taken: Taken) -> Iterator[None]:
    """Notes what a process takes of the CPU in this block."""
    begin, before = time.monotonic(), cpu_time(process.pid)
    yield
    taken.seconds, taken.cpu_ns = time.monotonic() - begin, cpu_time(process.pid) - before


@contextlib.contextmanager
def ours(b: Bench, pid: int, *options: str) -> Iterator[Taken]:
    """A recorder of Tailscope."""
    taken = Taken()
    recording = Recording(b, pid, (*CASE.options, *options), SPARE_CPU)
    with counted(recording.process, taken):
        yield taken
    recording.stop()
    files = (recording.ledger / "_stacks").glob("samples-*.pq")
    taken.samples = sum(parquet.read_metadata(file).num_rows for file in files)


@contextlib.contextmanager
def perf(b: Bench, pid: int, rate: int, calls: str) -> Iterator[Taken]:
    """`perf record` of the server alone."""
    taken = Taken()
    words = ["-e", "cpu-clock", "-F", str(rate), "--call-graph", calls, "-p", str(pid)]
    command = ["perf", "record", "-o", b.folder / "perf.data", *words]
    process = b.start(command, SPARE_CPU, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    time.sleep(0.5)
    with counted(process, taken):
        yield taken
    process.send_signal(signal.SIGINT)
    said = process.stderr.read()
    b.end(process)
    found = re.search(r"\((\d+) samples\)", said)
    taken.samples = int(found[1]) if found else 0


@contextlib.contextmanager
def off_cpu(b: Bench, pid: int) -> Iterator[Taken]:
    """bpftrace, which sums up stacks in the kernel and so has no samples."""
    taken = Taken()
    command = ["bpftrace", "-q", "-e", OFF_CPU.replace("PID", str(pid))]
    process = b.start(command, SPARE_CPU, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    if process.stdout.readline() != "begun\n":
        sys.exit("bpftrace did not start")
    with counted(process, taken):
        yield taken
    process.send_signal(signal.SIGINT)
    process.stdout.read()
    b.end(process)


Recorder = Callable[[], contextlib.AbstractContextManager[Taken]]


def recorders(b: Bench, pid: int, rate: int) -> dict[str, Recorder]:
    """Those that there are here."""
    found: dict[str, Recorder] = {
        ALONE: lambda: ours(b, pid),
        STACKS: lambda: ours(b, pid, f"--stacks={rate}"),
        "perf record, frame pointers": lambda: perf(b, pid, rate, "fp"),
        "perf record, copied stacks": lambda: perf(b, pid, rate, "dwarf"),
    }
    if shutil.which("bpftrace"):
        found["bpftrace, stacks of waits"] = lambda: off_cpu(b, pid)
    return found


def in_turns(all_of_them: dict[str, Recorder], number: int) -> list[tuple[str, Recorder]]:
    """Those of a round: ours, in an order that changes, and now and then the others."""
    items = list(all_of_them.items())
    own = items[:2] if number % 2 else items[1::-1]
    return own + (items[2:] if number % PEERS_EVERY == 0 else [])


def phase(server: Any, load: Load, seconds: float) -> Phase:  # noqa: ANN401
    """One phase, after a moment."""
    time.sleep(SETTLE)
    return measure(server, load, seconds)


def take_turns(b: Bench, args: argparse.Namespace) -> list[Round]:
    """All rounds."""
    rounds = []
    with under_load(b, CASE, args.connections) as (server, load):
        before = phase(server, load, args.phase)
        for number in range(args.rounds):
            for name, start in in_turns(recorders(b, server.pid, args.rate), number):
                with start() as taken:
                    on = phase(server, load, args.phase)
                after = phase(server, load, args.phase)
                rate = (before.rate + after.rate) / 2
                each = (before.cpu_per_request + after.cpu_per_request) / 2
                rounds.append(
                    Round(
                        name,
                        rate=on.rate / rate,
                        by_cpu=each / on.cpu_per_request,
                        added=(on.cpu_per_request - each) * rate / 1e9,
                        recorder=taken.cpu_ns / 1e9 / taken.seconds,
                        samples=taken.samples / taken.seconds,
                    )
                )
                before = after
            print(f"{number + 1} of {args.rounds}", flush=True)
    return rounds


def report(result: Result, rounds: list[Round]) -> None:
    """The table and the bars."""
    of = {
        name: [r for r in rounds if r.name == name]
        for name in dict.fromkeys(r.name for r in rounds)
    }
    lines = [
        (
            name,
            spread([r.rate for r in found]).text(3),
            spread([r.by_cpu for r in found]).text(3),
            spread([100 * r.added for r in found]).text(1),
            spread([100 * r.recorder for r in found]).text(1),
            spread([r.samples for r in found]).text(0),
        )
        for name, found in of.items()
    ]
    head = (
        *("recorder", "throughput ÷ without", "the same by CPU time a request"),
        *("% of a CPU that the server takes more", "% that the recorder takes", "samples/s"),
    )
    result.say("A busy memcached", table(head, lines))
    both = list(zip(of[STACKS], of[ALONE], strict=True))
    by_rate = spread([stacks.rate / alone.rate for stacks, alone in both])
    by_cpu = spread([stacks.by_cpu / alone.by_cpu for stacks, alone in both])
    bar = at_least("throughput, with --stacks ÷ without", 0.99, by_rate, "", 3)
    bar.note = f"by CPU time a request {by_cpu.text(3)}"
    more = spread([100 * (stacks.recorder - alone.recorder) for stacks, alone in both])
    result.bars += [bar, at_most("CPU time of the recorder for them", 2, more, "% of a CPU")]
    for name, found in of.items():
        if name in (ALONE, STACKS):
            continue
        pairs = list(zip(both[::PEERS_EVERY], found, strict=True))
        ratio = spread(
            [(s.added - a.added + s.recorder - a.recorder) / total(p) for (s, a), p in pairs]
        )
        what = f"CPU time for --stacks, of server and recorder, ÷ {name}"
        result.bars.append(at_most(what, 1, ratio, "", 2))
    result.figures = {"rounds": [asdict(r) for r in rounds]}
    result.summary = (
        f"memcached with --stacks ÷ without: {by_rate.median:.3f} by throughput, "
        f"{by_cpu.median:.3f} by CPU time"
    )


def total(one: Round) -> float:
    """The CPU time that it takes of all."""
    return one.added + one.recorder


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--phase", type=float, default=1.0, help="seconds")
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--rate", type=int, default=99, help="samples a second of each CPU")
    parser.add_argument("--no-result", action="store_true", help="write nothing")
    args = parser.parse_args()
    result = Result("stacks_cost", "What `record --stacks` costs")
    with bench() as b:
        report(result, take_turns(b, args))
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
