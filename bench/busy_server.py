"""Servers under a load that keeps them busy: what server_cost.py and program_cost.py record.

The server has one thread and CPU 0, the load generator (closed loop) and the recorder share the
other CPU. Requests are gets of one key, memcached's cheapest, and of many; of Redis, gets of one
key; of nginx, a page of six bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness import ROOT, SERVER_CPU, SPARE_CPU, Bench, cpu_ns, cpu_times, idle_cpu_share

SETTLE = 0.2  # seconds after a change, before a phase is measured
PORT = 22400

#: What is hit with every request, whoever is recorded. sched_switch and sched_waking are too, but
#: rarely: under this load the server hardly sleeps.
SCHEDULER = ("sched_switch", "sched_waking", "softirq_entry", "softirq_exit")
SOCKETS = (*SCHEDULER, "sock_recv_length", "sock_send_length")
#: Keys of a get in a large cache: 24 a batch on average (Nishtala et al., Scaling Memcache at
#: Facebook, NSDI 2013, section 3.1). One key is the cheapest request that memcached has.
BATCH = 24
#: One process that is master and worker in one, with a page of six bytes.
NGINX = """daemon off; master_process off; pid nginx.pid; error_log stderr;
events {{ }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server {{ listen 127.0.0.1:{port}; location / {{ return 200 "answer"; }} }}
}}
"""


@dataclass(frozen=True)
class Case:
    """A server, its requests, how it is recorded, and what must be left of its throughput."""

    name: str
    server: str
    options: tuple[str, ...]
    bar: float
    hooks: tuple[str, ...]  # the tracepoints of the kernel programs
    batch: int = 1  # keys in a request
    #: How a build that lacks this source records the same requests.
    before: tuple[str, ...] | None = None


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
    ready, hooks = ("--span", "syscall:ready..send"), (*SOCKETS, "sk_data_ready")
    for server in ("memcached", "redis", "nginx"):
        for words, options in (("", ()), (" without names", ("--no-names",))):
            every = ("--span", "request", *options)
            yield Case(f"request{words}, {server}", server, every, 0.95, hooks, before=ready)


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

    def __init__(self, bench: Bench, connections: int, case: Case) -> None:
        command = [bench.copy(ROOT / "target" / "release" / "tailscope-lab"), "load"]
        command += [*_address(case), "--closed-loop", "-c", str(connections)]
        command += ["-d", "24h", "--warmup", "1ms", "--cpu", str(SPARE_CPU)]
        command += ["--report-every", "20ms"]
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


def _address(case: Case) -> list[str]:
    """The load generator's words for this server and its requests."""
    if case.server == "nginx":
        return ["--http", f"http://127.0.0.1:{PORT}/"]
    protocol = "--redis" if case.server == "redis" else "--memcached"
    return [protocol, f"127.0.0.1:{PORT}", "--batch", str(case.batch)]


def _command(b: Bench, kind: str) -> list[Any]:
    """The command line of a server with one process and one thread for requests."""
    if kind == "memcached":
        one = ["-u", "nobody", "-l", "127.0.0.1", "-p", str(PORT), "-U", "0", "-t", "1"]
        return ["memcached", *one]
    if kind == "redis":
        alone = ["--save", "", "--appendonly", "no", "--dir", str(b.folder)]
        return ["redis-server", "--bind", "127.0.0.1", "--port", str(PORT), *alone]
    if kind == "nginx":
        conf = b.folder / "nginx.conf"
        conf.write_text(NGINX.format(port=PORT))
        return ["nginx", "-p", b.folder, "-e", "stderr", "-c", conf]
    return [b.copy(ROOT / "target" / "lab" / "kvserver"), "--port", str(PORT)]


def start_server(b: Bench, kind: str) -> subprocess.Popen[str]:
    """A server with one thread on its CPU, ready for connections."""
    server = b.start(_command(b, kind), SERVER_CPU, stdout=subprocess.DEVNULL)
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
    load = Load(b, connections, case)
    time.sleep(1.5)
    try:
        yield server, load
    finally:
        b.end(load.process)
        b.end(server)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options of both scripts."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
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
    parser.add_argument("--quick", action="store_true", help="5 rounds a case, for trying")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    return parser


def chosen(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[Case]]:
    """What was asked for."""
    args = parser.parse_args()
    if args.quick:
        args.pairs = 5
    cases = [case for case in CASES if not args.case or case.name in args.case]
    if not cases:
        parser.error(f"no case {args.case}")
    return args, cases
