"""What recording costs a server: phases without a recorder, with empty programs on its tracepoints,
and with it, alternating in one run.

The server has one thread and CPU 0, the load generator (closed loop, so the server is always busy)
and the recorder share the other CPU. A round is one phase of each kind next to each other, in an
order that changes; a recorder's start and end lie between phases. From each round come throughput
with ÷ without, and the same from the server's CPU time per request, which other work on the
machine disturbs far less. The empty programs tell what part of that is the kernel's own price of
calling a program. Requests are gets of one key, memcached's cheapest, and of many.

    .venv/bin/python bench/server_cost.py
    .venv/bin/python bench/server_cost.py --case recv..send --pairs 40
    .venv/bin/python bench/server_cost.py --programs        what each kernel program costs
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from empty_hooks import empty_hooks
from harness import (
    ROOT,
    SERVER_CPU,
    SPARE_CPU,
    Bench,
    Recording,
    Result,
    at_least,
    bench,
    cpu_ns,
    cpu_times,
    idle_cpu_share,
    lost,
    spread,
    table,
)

SETTLE = 0.2  # seconds after a change, before a phase is measured
PORT = 22400
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


#: What is hit with every request, whoever is recorded. sched_switch and sched_waking are too, but
#: rarely: under this load the server hardly sleeps.
SCHEDULER = ("sched_switch", "sched_waking", "softirq_entry", "softirq_exit")
SOCKETS = (*SCHEDULER, "sock_recv_length", "sock_send_length")
#: Keys of a get in a large cache: 24 a batch on average (Nishtala et al., Scaling Memcache at
#: Facebook, NSDI 2013, section 3.1). One key is the cheapest request that memcached has.
BATCH = 24


@dataclass(frozen=True)
class Case:
    """A server, its requests, how it is recorded, and what must be left of its throughput."""

    name: str
    server: str
    options: tuple[str, ...]
    bar: float
    hooks: tuple[str, ...]  # the tracepoints of the kernel programs
    batch: int = 1  # keys in a request


def _cases() -> Iterator[Case]:
    for batch in (1, BATCH):
        size = "" if batch == 1 else f", {batch} keys"
        for source in ("recv..send", "ready..send"):
            hooks = SOCKETS if source == "recv..send" else (*SOCKETS, "sk_data_ready")
            every = ("--span", f"syscall:{source}")
            yield Case(f"{source}{size}", "memcached", every, 0.95, hooks, batch)
            some = (*every, "--sample", "1%")
            yield Case(f"{source}, 1%{size}", "memcached", some, 0.98, hooks, batch)
        yield Case(f"sdk{size}", "kvserver", ("--span", "sdk"), 0.99, SCHEDULER, batch)


CASES = list(_cases())


@dataclass(frozen=True)
class Phase:
    """What one phase measured."""

    rate: float  # requests per second
    cpu_per_request: float  # ns of the server
    busy: float  # the server's share of its CPU
    taken: float  # what others took of that CPU
    generator: float  # the generator's share of its CPU


class Load:
    """The load generator, and how many requests were answered up to any moment."""

    def __init__(self, bench: Bench, connections: int, batch: int) -> None:
        command = [bench.copy(ROOT / "target" / "release" / "tailscope-lab"), "load"]
        command += ["--memcached", f"127.0.0.1:{PORT}", "--closed-loop", "-c", str(connections)]
        command += ["-d", "24h", "--warmup", "1ms", "--cpu", str(SPARE_CPU)]
        command += ["--report-every", "20ms", "--batch", str(batch)]
        self.process = bench.start(command, stdout=subprocess.PIPE)
        self.moments: list[int] = []  # Unix ns
        self.counts: list[int] = []  # requests answered until then
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        total = 0
        for text in self.process.stdout:
            line = json.loads(text)
            if line["kind"] == "interval":
                total += line["count"]
                self.counts.append(total)
                self.moments.append(line["unix_ns"])

    def answered(self, moment: int) -> float:
        """Requests answered until a moment, between two reports by a straight line."""
        deadline = time.monotonic() + 10
        while not self.moments or self.moments[-1] < moment:
            if self.process.poll() is not None or time.monotonic() > deadline:
                sys.exit("the load generator is gone or stuck")
            time.sleep(0.01)
        after = bisect_left(self.moments, moment)
        if after == 0:
            return float(self.counts[0])
        t0, t1 = self.moments[after - 1], self.moments[after]
        c0, c1 = self.counts[after - 1], self.counts[after]
        return c0 + (c1 - c0) * (moment - t0) / (t1 - t0)


def start_server(b: Bench, kind: str) -> subprocess.Popen[str]:
    """A server with one thread on its CPU, ready for connections."""
    if kind == "memcached":
        command: list[Any] = ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(PORT)]
        command += ["-U", "0", "-t", "1"]
    else:
        command = [b.copy(ROOT / "target" / "lab" / "kvserver"), "--port", str(PORT)]
    server = b.start(command, SERVER_CPU)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 1):
            return server
        time.sleep(0.02)
    sys.exit(f"{kind} does not answer at port {PORT}")


def measure(server: subprocess.Popen[str], load: Load, seconds: float) -> Phase:
    """One phase."""
    moments, own, others, generators = [], [], [], []
    for wait in (seconds, 0):
        moments.append(time.time_ns())
        own.append(cpu_ns(server.pid))
        generators.append(cpu_ns(load.process.pid))
        others.append(cpu_times(SERVER_CPU))
        time.sleep(wait)
    requests = load.answered(moments[1]) - load.answered(moments[0])
    ns = moments[1] - moments[0]
    busy = (own[1] - own[0]) / ns
    return Phase(
        rate=requests / ns * 1e9,
        cpu_per_request=(own[1] - own[0]) / requests,
        busy=busy,
        taken=max(0.0, 1 - idle_cpu_share(others[0], others[1]) - busy),
        generator=(generators[1] - generators[0]) / ns,
    )


@contextlib.contextmanager
def under_load(b: Bench, case: Case, connections: int) -> Iterator[tuple[Any, Load]]:
    """A server and its load, both ended at the end."""
    server = start_server(b, case.server)
    load = Load(b, connections, case.batch)
    time.sleep(1.5)
    try:
        yield server, load
    finally:
        b.end(load.process)
        b.end(server)


@dataclass(frozen=True)
class Round:
    """Three phases next to each other."""

    without: Phase
    hooked: Phase  # programs that do nothing, on the recorder's tracepoints
    recorded: Phase


def compare(b: Bench, case: Case, args: argparse.Namespace) -> tuple[list[Round], int, int]:
    """Rounds of phases, and the rows of all of them, seen and lost."""
    rounds, rows, rows_lost = [], 0, 0

    def phase() -> Phase:
        time.sleep(SETTLE)
        return measure(server, load, args.phase)

    def hooked() -> Phase:
        with empty_hooks(case.hooks):
            return phase()

    def recorded() -> Phase:
        nonlocal rows, rows_lost
        recording = Recording(b, server.pid, case.options, args.recorder_cpu)
        measured = phase()
        ledger = recording.stop()
        rows += ledger["rows"]
        rows_lost += lost(ledger)
        return measured

    with under_load(b, case, args.connections) as (server, load):
        for i in range(args.pairs):
            # Each kind comes first, second and third equally often, and in both directions.
            kinds = [("without", phase), ("hooked", hooked), ("recorded", recorded)]
            order = kinds[i % 3 :] + kinds[: i % 3]
            measured = {name: take() for name, take in (order[::-1] if i % 2 else order)}
            rounds.append(Round(**measured))
    return rounds, rows, rows_lost


# --- what each program of the kernel side costs ---------------------------------------------------


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
    b: Bench, pid: int, case: Case, load: Load, args: argparse.Namespace
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


def programs(b: Bench, case: Case, args: argparse.Namespace) -> str:
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


# --- the command ----------------------------------------------------------------------------------


def report(result: Result, case: Case, rounds: list[Round], rows: int, rows_lost: int) -> None:
    """One case's table and bar."""
    throughput = spread([r.recorded.rate / r.without.rate for r in rounds])
    by_cpu = spread([r.without.cpu_per_request / r.recorded.cpu_per_request for r in rounds])
    floor = spread([r.without.cpu_per_request / r.hooked.cpu_per_request for r in rounds])
    added = spread([r.recorded.cpu_per_request - r.without.cpu_per_request for r in rounds])
    hooks = spread([r.hooked.cpu_per_request - r.without.cpu_per_request for r in rounds])
    lines = []
    for name in ("without", "hooked", "recorded"):
        phases: list[Phase] = [getattr(r, name) for r in rounds]
        lines.append(
            (
                {"without": "no recorder", "hooked": "empty programs"}.get(name, name),
                spread([p.rate / 1000 for p in phases]).text(),
                spread([p.cpu_per_request for p in phases]).text(0),
                spread([100 * p.busy for p in phases]).text(0),
                spread([100 * p.taken for p in phases]).text(0),
                spread([100 * p.generator for p in phases]).text(0),
            )
        )
    head = (
        "phases",
        "1,000 requests/s",
        "server CPU ns/request",
        "server % of its CPU",
        "others % of it",
        "generator %",
    )
    text = [
        table(head, lines),
        "",
        f"- throughput, recorded ÷ not: {throughput.text(3)}, 95 % interval of the median "
        f"{throughput.interval(3)}, {len(rounds)} rounds",
        f"- the same by CPU time a request: {by_cpu.text(3)}, 95 % interval {by_cpu.interval(3)}; "
        f"{added.text(0)} ns added to a request",
        f"- of that the kernel's own cost of calling programs, measured with empty ones: "
        f"{hooks.text(0)} ns, which leaves {floor.text(3)}, 95 % interval {floor.interval(3)}",
        f"- {rows} rows, {rows_lost} lost",
    ]
    result.say(f"{case.server}, {case.name}", "\n".join(text))
    what = f"{case.server}'s throughput, {case.name}"
    bar = at_least(what, case.bar, throughput, "of that without a recorder", 3)
    by = f"by CPU time {by_cpu.median:.3f}, with empty programs {floor.median:.3f}"
    bar.note = f"{bar.note}; {by}" if bar.note else by
    result.bars.append(bar)
    result.figures[case.name] = {
        "throughput": vars(throughput),
        "by_cpu": vars(by_cpu),
        "by_cpu_empty_programs": vars(floor),
        "added_ns": vars(added),
        "added_ns_empty_programs": vars(hooks),
        "rows": rows,
        "lost": rows_lost,
        "rounds": [asdict(r) for r in rounds],
    }


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case",
        action="append",
        help="only this: " + ", ".join(repr(case.name).replace("%", "%%") for case in CASES),
    )
    parser.add_argument("--pairs", type=int, default=24, help="rounds of phases, for each case")
    parser.add_argument("--phase", type=float, default=1.0, help="length in seconds")
    parser.add_argument("-c", "--connections", type=int, default=32)
    parser.add_argument(
        "--recorder-cpu",
        type=lambda text: None if text == "any" else int(text),
        default=SPARE_CPU,
        help="where the recorder runs, or 'any' (default: the generator's CPU)",
    )
    parser.add_argument("--programs", action="store_true", help="kernel programs, one by one")
    parser.add_argument("--quick", action="store_true", help="5 rounds a case, for trying")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    if args.quick:
        args.pairs = 5
    cases = [case for case in CASES if not args.case or case.name in args.case]
    if not cases:
        parser.error(f"no case {args.case}")
    if args.programs:
        result = Result("kernel_programs", "What each kernel program costs a request")
        with bench() as b:
            for case in cases:
                result.say(f"{case.server}, {case.name}", programs(b, case, args))
    else:
        result = Result("server_cost", "What recording costs a server")
        with bench() as b:
            for case in cases:
                report(result, case, *compare(b, case, args))
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
