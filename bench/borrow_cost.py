"""What lending a server's CPU costs it, at three loads, with a batch that burns CPU time.

The server is memcached, or the lab's search server (Lucene: a coordinator and a worker). The batch
runs on its CPU in three ways: under `tailscope borrow`, at nice 19, and at nice 0. The load
generator's p99 compares them, with one run of each next to the others. For `borrow`, its own report
says in addition what the server's p99 was with lending on and off, by random phases, with the
interval. CPU busy is what /proc/stat counts for that CPU.

    .venv/bin/python bench/borrow_cost.py
    .venv/bin/python bench/borrow_cost.py --load 50 --seconds 20 --no-result
    make search && .venv/bin/python bench/borrow_cost.py --server search
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from busy_server import PORT, start_server
from harness import (
    ROOT,
    SERVER_CPU,
    SPARE_CPU,
    Bar,
    Bench,
    Result,
    bench,
    cpu_ns,
    cpu_times,
    idle_cpu_share,
    table,
)
from search_server import free_ports, index, java, need_built, serves

#: How often the rate is corrected by the CPU time that a request takes.
STEPS = 4
#: Of the search server: few documents, so that enough requests fit into the phases without lending.
DOCUMENTS = 2_000
#: Lending starts in this time; the phases of the report come after it.
START_S = 3
BATCH = ("hog", "--threads", "2")
#: Other work may take so much of the server's CPU: the kernel's, and the generator's packets (%).
QUIET = 20


@dataclass(frozen=True)
class Run:
    """The server at one load beside one kind of batch."""

    load: int
    kind: str
    p50_us: float
    p99_us: float
    busy: float
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """A server on its CPU: whose idle time is lent, all processes, and how the load asks it."""

    pid: int
    pids: tuple[int, ...]
    asked: tuple[str, ...]
    #: At which rate the CPU time of a request is first measured.
    probe_rate: int
    #: How long a run under borrow has to be, so that the phases without lending say something.
    seconds: int

    def cpu_ns(self) -> int:
        """The CPU time of all of it so far."""
        return sum(map(cpu_ns, self.pids))


def memcached(b: Bench) -> Server:
    """One thread."""
    pid = start_server(b, "memcached").pid
    return Server(pid, (pid,), ("--memcached", f"127.0.0.1:{PORT}"), 5_000, 30)


def search(b: Bench) -> Server:
    """The coordinator has the requests, and waits for the worker. Both are on the same CPU."""
    need_built()
    folder, (port, worker_port) = index(b, 1, DOCUMENTS), free_ports(2)
    words = ["worker", str(worker_port), str(folder / "0"), "none", "8", str(b.folder / "log")]
    worker = b.start(java(words), SERVER_CPU, stderr=subprocess.DEVNULL)
    serves(worker_port)
    coordinator = b.start(java(["coordinator", str(port), str(worker_port)]), SERVER_CPU)
    serves(port)
    pids = (coordinator.pid, worker.pid)
    return Server(coordinator.pid, pids, ("--http", f"http://127.0.0.1:{port}/"), 300, 120)


SERVERS = {"memcached": memcached, "search": search}


def lab(b: Bench) -> str:
    return str(b.folder / "tailscope-lab")


@contextlib.contextmanager
def batch(b: Bench, kind: str, pid: int, seconds: int) -> Iterator[subprocess.Popen[str] | None]:
    """The batch of a kind, for as long as the load takes."""
    if kind == "none":
        yield None
        return
    if kind == "borrow":
        options = ["--for", str(pid), "-d", f"{seconds}s", "--json", "--held-back", "6%", "--quiet"]
        command = [b.tailscope, "borrow", *options, "--", lab(b), *BATCH]
        process = b.start(command, SPARE_CPU, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    else:
        nice = kind.removeprefix("nice ")
        process = b.start(["nice", "-n", nice, lab(b), *BATCH], SERVER_CPU)
    yield process
    b.end(process)


def measure(b: Bench, server: Server, load: int, rate: int, kind: str, seconds: int) -> Run:
    """One run."""
    with batch(b, kind, server.pid, seconds + 2 * START_S) as process:
        time.sleep(START_S if kind == "borrow" else 0.5)
        begin = cpu_times(SERVER_CPU)
        latency = under_load(b, server, rate, seconds)
        busy = 1 - idle_cpu_share(begin, cpu_times(SERVER_CPU))
        report = {}
        if kind == "borrow" and process is not None:
            output, _ = process.communicate(timeout=60)
            report = json.loads(output)
    return Run(load, kind, latency["p50"] / 1e3, latency["p99"] / 1e3, busy, report)


def under_load(b: Bench, server: Server, rate: int, seconds: int) -> dict[str, float]:
    """The latency that clients see without the generator's own delays, in ns."""
    command = [lab(b), "load", *server.asked, "--json"]
    options = ["--rate", str(rate), "-d", f"{seconds}s"]
    first = ["chrt", "-f", "50", "taskset", "-c", str(SPARE_CPU)]
    process = b.start([*first, *command, *options], stdout=subprocess.PIPE)
    output, _ = process.communicate(timeout=seconds + 60)
    if process.returncode != 0:
        sys.exit("the load generator failed")
    return json.loads(output.splitlines()[-1])["served_ns"]


def rate_of(b: Bench, server: Server, load: int) -> int:
    """The request rate at which the server alone uses this share of its CPU.

    A request costs less at a higher rate, as the server takes several at a time: so the rate is
    found in steps.
    """
    rate = server.probe_rate
    for _ in range(STEPS):
        before = server.cpu_ns()
        under_load(b, server, rate, 3)
        per_request = (server.cpu_ns() - before) / (3 * rate)
        rate = round(load / 100 * 1e9 / per_request)
    return rate


def change(run: Run) -> dict[str, float | None]:
    """What lending did to p99, by the report's phases."""
    return run.report["tails"][1]["change"]


def others(runs: Sequence[Run], load: int) -> str:
    """What spoils the runs at a load: other work on the server's CPU. Empty: nothing does."""
    alone = next(run.busy for run in runs if (run.load, run.kind) == (load, "none"))
    if alone * 100 <= load + QUIET:
        return ""
    return f"the machine was not quiet: CPU busy {alone * 100:.0f} % without a batch"


def bars(runs: Sequence[Run]) -> Iterator[Bar]:
    """At most 5 % more p99 by phases, and a CPU that is at least 95 % busy."""
    for run in runs:
        if run.kind != "borrow":
            continue
        if spoilt := others(runs, run.load):
            what = f"p99 and CPU busy at {run.load} % load"
            yield Bar(what, "a quiet machine", "not known", held=False, note=spoilt)
            continue
        of = change(run)
        if of["value"] is None or of["low"] is None or of["high"] is None:
            figure, held, note = "not known", False, "too few requests or phases"
        else:
            figure = f"{of['value'] * 100:+.1f} [{of['low'] * 100:+.1f}, {of['high'] * 100:+.1f}] %"
            held = of["value"] <= 0.05
            note = "within the noise" if of["low"] <= 0.05 <= of["high"] else ""
        yield Bar(f"p99 at {run.load} % load, lending on ÷ off", "at most +5 %", figure, held, note)
        busy = f"{run.busy * 100:.1f} %"
        yield Bar(f"CPU busy at {run.load} % load", "at least 95 %", busy, run.busy >= 0.95)


def rows(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    """The table."""
    for run in runs:
        figures = f"{run.p50_us:.0f}", f"{run.p99_us:.0f}", f"{run.busy * 100:.1f}"
        yield f"{run.load} %", run.kind, *figures


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=SERVERS, default="memcached")
    parser.add_argument("--load", type=int, action="append", help="percent of the server's CPU")
    parser.add_argument("--seconds", type=int, help="of each run under borrow [30; search: 120]")
    parser.add_argument("--no-result", action="store_true", help="write nothing")
    args = parser.parse_args()
    name = f"borrow_{args.server}"
    result = Result(name, f"What lending its CPU costs a server ({args.server})")
    runs = []
    with bench() as b:
        b.copy(ROOT / "target" / "release" / "tailscope-lab")
        server = SERVERS[args.server](b)
        whole = args.seconds or server.seconds
        for load in args.load or (30, 50, 70):
            rate = rate_of(b, server, load)
            for kind in ("none", "borrow", "nice 19", "nice 0"):
                seconds = whole if kind == "borrow" else max(5, whole // 4)
                runs.append(measure(b, server, load, rate, kind, seconds))
                print(f"{load} % ({rate}/s) {kind}: p99 {runs[-1].p99_us:.0f} µs", flush=True)
    head = ("load", "batch", "p50, µs", "p99, µs", "CPU busy, %")
    result.say("Clients' latency, and the server's CPU", table(head, list(rows(runs))))
    result.bars += bars(runs)
    result.figures = {"runs": [asdict(run) for run in runs]}
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
