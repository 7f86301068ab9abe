"""What a timeline costs: a busy memcached with all events on, beside perf with the same events.

Short phases take turns: nobody records; `tailscope timeline`; `perf record` of the same tracepoints
into memory that is written over, as a flight recorder's is; the kernel's own rings with the same
events, as `trace-cmd start` sets them up (by tracefs itself: trace-cmd 3.1.6 crashes here);
programs that return at once on the tracepoints that ours hang on, which no recorder on them can
undercut. memcached says itself how many requests it answered, in a closed loop. With one connection
what the hooks add stands in each request's way, on whichever CPU, and is told per event by dividing
through the events of a request; with several the server is busy, and a request has fewer events.

What our programs take of their own the kernel says (`kernel.bpf_stats_enabled`), in a phase of its
own at the end. It reads its clock around each run: how long that takes empty programs say, and it
is taken off.

    .venv/bin/python bench/timeline_cost.py
    .venv/bin/python bench/timeline_cost.py --connections 1
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from empty_hooks import empty_hooks
from harness import ROOT, SERVER_CPU, SPARE_CPU, Bench, Result, at_least, at_most, bench, spread

#: The kernel's names of what our programs hang on.
TRACEPOINTS = (
    *("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new", "power:cpu_idle"),
    *("irq:softirq_entry", "irq:softirq_exit", "irq:irq_handler_entry", "irq:irq_handler_exit"),
    *(f"irq_vectors:{v}_{e}" for v in ("local_timer", "reschedule") for e in ("entry", "exit")),
    *(f"irq_vectors:call_function_single_{edge}" for edge in ("entry", "exit")),
    *("net:netif_receive_skb", "net:net_dev_start_xmit", "tcp:tcp_probe"),
    *("sock:sk_data_ready", "sock:sock_recv_length", "sock:sock_send_length"),
    *("block:block_rq_issue", "block:block_rq_complete"),
)
#: System calls of the server alone, as ours.
SYSCALLS = ("raw_syscalls:sys_enter", "raw_syscalls:sys_exit")
#: Of ours alone, for the names of threads and where they move.
OTHERS = ("task:task_newtask", "sched:sched_process_exit", "sched:sched_migrate_task")
STATS = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True)
class Round:
    """Requests a second with each of them ÷ without any, and what that is for an event of ours."""

    ours: float
    perf: float
    ftrace: float
    empty: float
    cost_ns: float
    #: On all CPUs.
    events_a_request: float


class Server:
    """memcached, and how many requests it has answered."""

    def __init__(self, b: Bench) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", str(self.port)]
        self.process = b.start([*command, "-U", "0", "-t", "1"], SPARE_CPU)
        for _ in range(100):
            try:
                self.asks = socket.create_connection(("127.0.0.1", self.port))
                return
            except OSError:
                time.sleep(0.05)
        sys.exit("memcached does not answer")

    def answered(self) -> tuple[int, int]:
        """Requests for values so far, and when that was, in ns."""
        self.asks.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += self.asks.recv(1 << 16)
        return int(re.search(rb"STAT cmd_get (\d+)", text)[1]), time.monotonic_ns()

    def rate(self, seconds: float) -> float:
        """Requests a second, for so long."""
        (first, begin) = self.answered()
        time.sleep(seconds)
        (last, end) = self.answered()
        return (last - first) / (end - begin) * 1e9


@contextmanager
def timeline(b: Bench, server: Server, memory: str, *options: str) -> Iterator[list[str]]:
    """A flight recorder; what it says is in the list afterwards."""
    words = ["timeline", "-p", str(server.process.pid), "--memory", memory, *options]
    folder = b.folder / "windows"
    process = b.start([b.tailscope, *words, "-o", folder], stderr=subprocess.PIPE)
    line = process.stderr.readline()
    if "keeping" not in line:
        sys.exit(f"the flight recorder did not start: {line}{process.stderr.read()}")
    said: list[str] = []
    try:
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        said += process.stderr.read().splitlines()
        b.end(process)
        for window in folder.glob("*.timeline"):
            window.unlink()


@contextmanager
def ftrace(server: Server) -> Iterator[None]:
    """The kernel's own flight recorder, in an instance of its own."""
    place = Path("/sys/kernel/tracing/instances/tailscope-bench")
    place.mkdir()
    try:
        (place / "buffer_size_kb").write_text(str(8 << 10))
        threads = [task.name for task in Path(f"/proc/{server.process.pid}/task").iterdir()]
        for name in (*TRACEPOINTS, *SYSCALLS):
            event = place / "events" / name.replace(":", "/")
            if name in SYSCALLS:
                theirs = " || ".join(f"common_pid == {thread}" for thread in threads)
                (event / "filter").write_text(theirs)
            (event / "enable").write_text("1")
        yield
    finally:
        place.rmdir()


@contextmanager
def perf(b: Bench, server: Server) -> Iterator[None]:
    """perf's own flight recorder."""
    events = [word for name in TRACEPOINTS for word in ("-e", name)]
    threads = [task.name for task in Path(f"/proc/{server.process.pid}/task").iterdir()]
    for name in SYSCALLS:
        theirs = " || ".join(f"common_pid == {thread}" for thread in threads)
        events += ["-e", name, "--filter", theirs]
    command = ["perf", "record", "-q", "-a", "--overwrite", "-m", "8M"]
    process = b.start([*command, "-o", b.folder / "perf.data", *events], stderr=subprocess.PIPE)
    time.sleep(1.0)
    if process.poll() is not None:
        sys.exit(f"perf did not start: {process.stderr.read()}")
    try:
        yield
    finally:
        b.end(process, signal.SIGINT)


def programs() -> dict[int, dict[str, Any]]:
    """What the kernel says of each program that is loaded, by its id."""
    listed = subprocess.run(["bpftool", "-j", "prog"], capture_output=True, text=True, check=True)
    return {program["id"]: program for program in json.loads(listed.stdout)}


def own_time(recorder: AbstractContextManager[Any], seconds: float) -> tuple[float, int]:
    """ns that a recorder's programs ran for each run, and how many ran, as the kernel counts."""
    before, others = STATS.read_text(), programs()
    STATS.write_text("1")
    try:
        with recorder:
            time.sleep(seconds)
            ours = [program for number, program in programs().items() if number not in others]
    finally:
        STATS.write_text(before)
    runs = sum(program.get("run_cnt", 0) for program in ours)
    return sum(program.get("run_time_ns", 0) for program in ours) / max(1, runs), runs


def take_turns(b: Bench, server: Server, args: argparse.Namespace, hooks: list[str]) -> Round:
    """One round of phases."""
    off = server.rate(args.seconds)
    with timeline(b, server, args.memory) as said:
        begin = time.monotonic()
        on = server.rate(args.seconds)
        lasted = time.monotonic() - begin
    told = next(line for line in said if " events, " in line)
    events = int(told.split(" events")[0].replace(",", ""))
    again = server.rate(args.seconds)
    with perf(b, server):
        beside = server.rate(args.seconds)
    between = server.rate(args.seconds)
    with ftrace(server):
        kernels = server.rate(args.seconds)
    with empty_hooks(hooks):
        empty = server.rate(args.seconds)
    last = server.rate(args.seconds)
    base = (off + again) / 2
    # It keeps events a little longer than the phase lasts, from its begin to its end.
    per_request = events / (on * lasted)
    cost = (1e9 / on - 1e9 / base) / per_request
    shares = on / base, beside / again, kernels / between, empty / last
    one = Round(*shares, cost, per_request)
    print("{:.3f}, perf {:.3f}, ftrace {:.3f}, empty {:.3f}".format(*shares), told, flush=True)
    return one


def measure(b: Bench, args: argparse.Namespace, result: Result) -> None:
    """All rounds."""
    server = Server(b)
    lab = ROOT / "target" / "release" / "tailscope-lab"
    load = [lab, "load", "--closed-loop", "-c", str(args.connections)]
    load += ["--memcached", f"127.0.0.1:{server.port}", "-d", "3600s"]
    b.start(load, SERVER_CPU, stdout=subprocess.DEVNULL)
    server.rate(1.0)
    hooks = [name.partition(":")[2] for name in (*TRACEPOINTS, *SYSCALLS, *OTHERS)]
    rounds = [take_turns(b, server, args, hooks) for _ in range(args.rounds)]
    mine, perfs, kernels, empties = (
        spread([getattr(one, who) for one in rounds]) for who in ("ours", "perf", "ftrace", "empty")
    )
    cost = spread([one.cost_ns for one in rounds])
    per_request = spread([one.events_a_request for one in rounds])
    own, runs = own_time(timeline(b, server, args.memory), args.seconds)
    nothing, _ = own_time(empty_hooks(hooks), args.seconds)
    if args.connections == 1:
        result.bars.append(at_most("cost an event, all in, by throughput", 150, cost, "ns"))
    beside_perf = spread([one.ours / one.perf for one in rounds])
    beside_ftrace = spread([one.ours / one.ftrace for one in rounds])
    result.bars += [
        at_most("cost an event, the programs' own time", 150, own - nothing, "ns"),
        at_least("memcached with all events on, recorded ÷ not", 0.90, mine, "", 3),
        at_least("the same ÷ perf's", 1.0, beside_perf, "", 3),
        at_least("the same ÷ that of the kernel's own rings", 1.0, beside_ftrace, "", 3),
    ]
    result.figures = {"rounds": [asdict(one) for one in rounds], "own_ns": own, "runs": runs}
    result.figures["empty_own_ns"] = nothing
    result.summary = (
        f"throughput ÷ without: recorded {mine.median:.3f}, perf {perfs.median:.3f}, ftrace "
        f"{kernels.median:.3f}, empty programs {empties.median:.3f}"
    )
    result.say(
        "Throughput",
        f"- recorded ÷ not: {mine.text(3)}, 95 % interval {mine.interval(3)}\n"
        f"- perf ÷ not: {perfs.text(3)}, 95 % interval {perfs.interval(3)}\n"
        f"- the kernel's own rings ÷ not: {kernels.text(3)}, 95 % interval {kernels.interval(3)}\n"
        f"- empty programs on the same tracepoints ÷ not: {empties.text(3)}, 95 % interval "
        f"{empties.interval(3)}\n"
        f"- events a request, on all CPUs: {per_request.text(1)}\n"
        f"- own time by the kernel's statistics, a run: {own:.0f} ns, of empty programs "
        f"{nothing:.0f} ns: its clock readings, which nobody pays for otherwise",
    )


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a phase")
    parser.add_argument("--connections", type=int, default=16, help="of the load, 1: a ping-pong")
    parser.add_argument("--memory", default="64MB", help="of the rings")
    args = parser.parse_args()
    name = "timeline_cost_alone" if args.connections == 1 else "timeline_cost"
    result = Result(name, f"What a timeline costs: {args.connections} connections")
    with bench() as b:
        measure(b, args, result)
    result.write()


if __name__ == "__main__":
    main()
