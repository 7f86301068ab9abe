"""What the recorder takes at 50,000 spans a second: CPU time, disk, memory; and what it lost.

Spans come by the clock (open loop), from a program annotated with the SDK and from memcached. The
recorder's CPU time is what ledger.json says of it, less that of a recording of the same kind with
no spans in it: loading the programs and ending is paid once, however long it runs.

    .venv/bin/python bench/recorder_cost.py
    .venv/bin/python bench/recorder_cost.py --duration 60      a shorter look at its memory
"""

from __future__ import annotations

import argparse
import contextlib
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from busy_server import PORT, start_server
from harness import (
    ROOT,
    SERVER_CPU,
    SPARE_CPU,
    Bar,
    Bench,
    Recording,
    Result,
    Spread,
    at_most,
    bench,
    lost,
    spread,
    table,
)

RATE = 50_000
MIB = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where spans come from."""

    name: str
    options: tuple[str, ...]
    running: Callable[[Bench, int], contextlib.AbstractContextManager[int]]


@contextlib.contextmanager
def paced_program(b: Bench, rate: int) -> Iterator[int]:
    """A program with spans of the SDK; gives its process."""
    command = [b.compile("pacer.c"), "--rate", str(rate), "--cpu", str(SERVER_CPU)]
    program = b.start(command, stdout=subprocess.DEVNULL)
    time.sleep(0.2)
    yield program.pid
    b.end(program)


@contextlib.contextmanager
def paced_memcached(b: Bench, rate: int) -> Iterator[int]:
    """memcached under an open loop; gives its process."""
    server = start_server(b, "memcached")
    load = None
    if rate:
        command = [b.copy(ROOT / "target" / "release" / "tailscope-lab"), "load"]
        command += ["--memcached", f"127.0.0.1:{PORT}", "--rate", str(rate), "-c", "32"]
        quiet = (b.folder / "load.txt").open("w")
        load = b.start([*command, "-d", "24h", "--cpu", str(SPARE_CPU)], stdout=quiet.fileno())
        quiet.close()
        time.sleep(2)
    yield server.pid
    if load:
        b.end(load)
    b.end(server)


SDK = Source("SDK", ("--span", "sdk"), paced_program)
SOURCES = [
    SDK,
    Source("memcached, recv..send", ("--span", "syscall:recv..send"), paced_memcached),
    Source("memcached, ready..send", ("--span", "syscall:ready..send"), paced_memcached),
]


@dataclass(frozen=True)
class Recorded:
    """What one recording took."""

    seconds: float
    cpu_ns: int
    rows: int
    bytes: int
    lost: int
    max_rss: int


def record(b: Bench, pid: int, source: Source, seconds: float, cpu: int | None) -> Recorded:
    """Records for a while."""
    recording = Recording(b, pid, source.options, cpu)
    begin = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - begin
    return from_ledger(recording.stop(), recording.ledger, took)


def from_ledger(ledger: dict[str, Any], folder: Path, seconds: float) -> Recorded:
    """What the ledger says; its size is what is on disk."""
    return Recorded(
        seconds=seconds,
        cpu_ns=ledger["cost"]["cpu_ns"],
        rows=ledger["rows"],
        bytes=sum(file.stat().st_size for file in folder.rglob("*.parquet")),
        lost=lost(ledger),
        max_rss=ledger["cost"]["max_rss_bytes"],
    )


def measure_source(
    b: Bench, source: Source, repeats: int, seconds: float, cpu: int | None
) -> tuple[list[Recorded], list[Recorded]]:
    """Recordings with spans, and as many without, alternating."""
    empty, full = [], []
    for _ in range(repeats):
        for rate, kept in ((0, empty), (RATE, full)):
            with source.running(b, rate) as pid:
                kept.append(record(b, pid, source, seconds, cpu))
    return full, empty


def report_source(
    result: Result, source: Source, full: list[Recorded], empty: list[Recorded]
) -> None:
    """A table of one source, its bars."""
    fixed = spread([r.cpu_ns / 1e6 for r in empty])
    share = spread(
        [100 * (r.cpu_ns - e.cpu_ns) / r.seconds / 1e9 for r, e in zip(full, empty, strict=True)]
    )
    whole = spread([100 * r.cpu_ns / r.seconds / 1e9 for r in full])
    each = spread(
        [(r.cpu_ns - e.cpu_ns) / max(1, r.rows) for r, e in zip(full, empty, strict=True)]
    )
    size = spread([r.bytes / max(1, r.rows) for r in full])
    rows_lost = sum(r.lost for r in full)
    rate = spread([r.rows / r.seconds for r in full])
    lines = [
        ("rows per second", rate.text(0)),
        ("recorder's CPU, % of one, less the fixed part", share.text(2)),
        ("recorder's CPU, % of one, all of it", whole.text(2)),
        ("fixed part: a recording of no spans, ms of CPU", fixed.text(0)),
        ("recorder's CPU a row, ns", each.text(0)),
        ("bytes a row on disk", size.text(2)),
        ("rows lost", str(rows_lost)),
        ("largest resident size, MiB", f"{max(r.max_rss for r in full) / MIB:.1f}"),
    ]
    result.say(f"{source.name}: {len(full)} recordings", table(("figure", "median"), lines))
    result.bars.append(
        at_most(f"recorder's CPU at 50,000 spans/s, {source.name}", 5, share, "% of one CPU", 2)
    )
    result.bars.append(at_most(f"ledger, {source.name}", 24, size, "bytes a row", 2))
    if rows_lost or rate.median < 0.95 * RATE:
        for bar in result.bars[-2:]:
            bar.note = f"{rate.median:.0f} rows/s, {rows_lost} lost"
    result.figures[source.name] = {
        "cpu_percent": vars(share),
        "cpu_percent_all": vars(whole),
        "fixed_ms": vars(fixed),
        "ns_a_row": vars(each),
        "bytes_a_row": vars(size),
        "rows_per_second": vars(rate),
        "lost": rows_lost,
    }


# --- memory ---------------------------------------------------------------------------------------


def resident(pid: int) -> dict[str, float]:
    """MiB of a process: all, and by what is behind it."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.findall(r"^(VmRSS|VmHWM|RssAnon|RssFile|RssShmem):\s+(\d+) kB", status, re.M)
    return {name: int(kib) / 1024 for name, kib in found}


def measure_memory(
    b: Bench, seconds: float, cpu: int | None
) -> tuple[list[tuple[float, dict[str, float]]], Recorded]:
    """The recorder's size every 10 s (60 times in a shorter run)."""
    every = min(10.0, seconds / 60)
    samples = []
    with SDK.running(b, RATE) as pid:
        recording = Recording(b, pid, SDK.options, cpu)
        begin = time.monotonic()
        while (elapsed := time.monotonic() - begin) < seconds:
            time.sleep(min(every, seconds - elapsed))
            samples.append((time.monotonic() - begin, resident(recording.process.pid)))
        took = time.monotonic() - begin
        recorded = from_ledger(recording.stop(), recording.ledger, took)
    return samples, recorded


def report_memory(
    result: Result, samples: list[tuple[float, dict[str, float]]], recorded: Recorded
) -> None:
    """First minute against last (tenths of a shorter run), and the largest."""
    length = samples[-1][0]
    part = min(60.0, length / 10)
    kinds = ["VmRSS", "RssAnon", "RssFile", "RssShmem"]

    def of(kind: str, from_s: float, to_s: float) -> Spread:
        return spread([s[kind] for t, s in samples if from_s <= t <= to_s])

    # The first tenth of the first part is start-up: pages touched for the first time.
    rows = [
        (kind, of(kind, part / 10, part).text(), of(kind, length - part, length).text())
        for kind in kinds
    ]
    first, last = of("VmRSS", part / 10, part), of("VmRSS", length - part, length)
    largest = max(max(s["VmHWM"] for _, s in samples), recorded.max_rss / MIB)
    heads = ("MiB", f"first {part:.0f} s", f"last {part:.0f} s")
    text = table(heads, rows)
    text += f"\n\nOver {length:.0f} s and {recorded.rows} rows, {recorded.lost} of them lost."
    result.say("Memory of the recorder, SDK spans", text)
    result.bars.append(at_most("memory of the recorder, largest", 64, largest, "MiB"))
    grown = last.median - first.median
    result.bars.append(
        Bar(
            f"memory of the recorder, flat over {length:.0f} s",
            "last part at most 2 MiB above the first",
            f"{grown:+.1f} MiB",
            grown <= 2,
        )
    )
    every = [(round(t, 1), round(s["VmRSS"], 2)) for t, s in samples]
    result.figures["memory"] = {"largest_mib": largest, "grown_mib": grown, "rss_mib": every}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--duration", type=float, default=600, help="of the look at memory, s")
    parser.add_argument("--seconds", type=float, default=15, help="of every other recording")
    parser.add_argument("--repeats", type=int, default=5, help="recordings with and without spans")
    parser.add_argument(
        "--recorder-cpu",
        type=lambda text: None if text == "any" else int(text),
        default=SPARE_CPU,
        help="where the recorder runs, or 'any'",
    )
    parser.add_argument("--quick", action="store_true", help="short, for trying")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    if args.quick:
        args.duration, args.seconds, args.repeats = 30.0, 5.0, 2
    result = Result("recorder_cost", "What the recorder itself takes")
    with bench() as b:
        for source in SOURCES:
            measured = measure_source(b, source, args.repeats, args.seconds, args.recorder_cpu)
            report_source(result, source, *measured)
        report_memory(result, *measure_memory(b, args.duration, args.recorder_cpu))
    cpu, size = (
        [figures[what]["median"] for figures in result.figures.values() if what in figures]
        for what in ("cpu_percent", "bytes_a_row")
    )
    result.summary = (
        f"at {RATE:,} spans/s: {min(cpu):.1f} to {max(cpu):.1f} % of a CPU, {min(size):.1f} to "
        f"{max(size):.1f} bytes a row, {result.figures['memory']['largest_mib']:.1f} MiB"
    )
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
