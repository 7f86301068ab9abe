"""What each of the recorder's kernel programs costs a request, by the kernel's own statistics.

The server and its load are busy_server.py's. The server is recorded, and in turn a process that
does nothing, while the programs run as often: what they then take is the way out that all who are
not recorded take, with the two clock readings that the statistics add to every run.

    .venv/bin/python bench/program_cost.py --case recv..send
    .venv/bin/python bench/program_cost.py --case ready..send --base OLD/tailscope

With --base the whole cost of a request is compared with that of another build, in turns. A build
that does not know `--span request` records by `syscall:ready..send` in its place.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from busy_server import SETTLE, Case, Load, arguments, chosen, under_load
from harness import Bench, Recording, Result, bench, spread, table

STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


def program_counts(recorder: int) -> dict[int, tuple[int, int]]:
    """For each BPF program that the recorder holds: how often it ran, and ns."""
    counts = {}
    for entry in Path(f"/proc/{recorder}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            fields = dict(re.findall(r"(\w+):\s+(\d+)", entry.read_text()))
            if "run_cnt" in fields:
                found = int(fields["run_cnt"]), int(fields["run_time_ns"])
                counts[int(fields["prog_id"])] = found
    return counts


def program_names() -> dict[int, str]:
    """Names of all loaded programs."""
    for bpftool in ("/usr/sbin/bpftool", "bpftool"):
        with contextlib.suppress(OSError):
            shown = subprocess.run(
                [bpftool, "prog", "show", "--json"], capture_output=True, check=True
            )
            return {p["id"]: p["name"] for p in json.loads(shown.stdout) if "name" in p}
    sys.exit("bpftool is not there: apt-get install bpftool")


@contextlib.contextmanager
def program_statistics() -> Iterator[None]:
    """The kernel's own statistics of BPF programs, switched back afterwards."""
    before = STATS.read_text()
    STATS.write_text("1")
    try:
        yield
    finally:
        STATS.write_text(before)


def watch_programs(
    b: Bench, pid: int, case: Case, load: Load, args: Namespace
) -> tuple[dict[str, tuple[int, int]], float]:
    """Runs and ns of each program while `pid` is recorded, and the requests served meanwhile."""
    recording = Recording(b, pid, case.options, args.recorder_cpu)
    time.sleep(SETTLE)
    names = program_names()
    with program_statistics():
        begin, first = time.time_ns(), program_counts(recording.process.pid)
        time.sleep(args.phase)
        end, last = time.time_ns(), program_counts(recording.process.pid)
    requests = load.answered(end) - load.answered(begin)
    recording.stop()
    gained = {
        names.get(i, str(i)): (
            last[i][0] - first.get(i, (0, 0))[0],
            last[i][1] - first.get(i, (0, 0))[1],
        )
        for i in last
    }
    return gained, requests


def programs(b: Bench, case: Case, args: Namespace) -> str:
    """A table: each program with what it costs here, and where nobody who is recorded runs."""
    totals: dict[str, list[float]] = {}
    requests = [0.0, 0.0]
    with under_load(b, case, args.connections) as (server, load):
        bystander = b.start(["sleep", "infinity"])
        for _ in range(max(3, args.pairs // 4)):
            for column, pid in enumerate((server.pid, bystander.pid)):
                gained, served = watch_programs(b, pid, case, load, args)
                requests[column] += served
                for name, (runs, ns) in gained.items():
                    sums = totals.setdefault(name, [0, 0, 0, 0])
                    sums[2 * column] += runs
                    sums[2 * column + 1] += ns
        b.end(bystander)
    rows, whole = [], 0.0
    for name, (runs, ns, idle_runs, idle_ns) in sorted(totals.items(), key=lambda t: -t[1][1]):
        if runs < requests[0] / 1000:
            continue
        floor = idle_ns / idle_runs if idle_runs else 0.0
        extra = (ns - runs * floor) / requests[0]
        whole += extra
        rows.append(
            (
                name,
                f"{runs / requests[0]:.2f}",
                f"{ns / runs:.0f}",
                f"{floor:.0f}",
                f"{extra:.0f}",
            )
        )
    rows.append(("together", "", "", "", f"{whole:.0f}"))
    head = ("program", "runs a request", "ns a run", "ns a run, bystander recorded", "ns a request")
    return (
        table(head, rows)
        + "\n\nRuns count both sides of each connection: the generator's side leaves at once. The"
        "\nkernel's statistics add their own two clock readings to every run; recording a bystander"
        "\ninstead shows them, with the way out that all who are not recorded take. The last column"
        "\nis the rest."
    )


def above_empty(b: Bench, pids: tuple[int, int], case: Case, load: Load, args: Namespace) -> float:
    """ns of a request that all programs take, above the way out while a bystander is recorded."""
    (here, served), (elsewhere, _) = (watch_programs(b, pid, case, load, args) for pid in pids)
    whole = 0.0
    for name, (runs, ns) in here.items():
        idle_runs, idle_ns = elsewhere.get(name, (0, 0))
        whole += ns - runs * (idle_ns / idle_runs if idle_runs else 0.0)
    return whole / served


def follows(tailscope: Path) -> bool:
    """Whether a build knows `--span request`."""
    told = subprocess.run([tailscope, "record", "--help"], capture_output=True, text=True)
    return "  request  " in told.stdout


def instead(case: Case) -> Case:
    """The case as a build records it that does not know its source."""
    return replace(case, options=case.before or case.options)


def compared(b: Bench, case: Case, args: Namespace) -> str:
    """Both builds in turns: what a request costs by each, and by how much they differ.

    Each round has a server of its own: where its memory lies makes a difference, too.
    """
    as_before = case if case.before is None or follows(args.base) else instead(case)
    builds = [("base", args.base, as_before), ("this build", b.tailscope, case)]
    found: dict[str, list[float]] = {name: [] for name, *_ in builds}
    for _ in range(max(3, args.pairs // 2)):
        builds.reverse()
        with under_load(b, case, args.connections) as (server, load):
            bystander = b.start(["sleep", "infinity"])
            for name, b.tailscope, recorded in builds:
                pids = (server.pid, bystander.pid)
                found[name].append(above_empty(b, pids, recorded, load, args))
            b.end(bystander)
    more = [new - old for old, new in zip(found["base"], found["this build"], strict=True)]
    rows = [(name, spread(values).text(0)) for name, values in (*found.items(), ("more", more))]
    return table(("build", "ns a request above empty programs"), rows)


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    parser.add_argument("--base", type=Path, help="another build's tailscope, to compare with")
    args, cases = chosen(parser)
    result = Result("program_cost", "What each kernel program costs a request")
    with bench() as b:
        for case in cases:
            measure = compared if args.base else programs
            result.say(f"{case.server}, {case.name}", measure(b, case, args))
    if not args.no_result and not args.base:
        result.write()


if __name__ == "__main__":
    main()
