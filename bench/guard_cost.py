"""What guard adds to a request, beside nginx as a proxy: latency, and CPU time.

Two nginx servers answer a GET of 1 KiB. The lab asks one of them directly, through nginx with
a pool of connections, and through guard, in short alternating phases of an open loop. A proxy's CPU
time is that of all its threads; guard's has its watch for hazards in it. The bars are ratios, as
absolute times vary by 40 % on virtual machines.

    .venv/bin/python bench/guard_cost.py
    .venv/bin/python bench/guard_cost.py --nginx /path/to/nginx --rate 2000 --rounds 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from harness import ROOT, Result, at_most, cpu_ns, spread, table

sys.path.insert(0, str(ROOT / "lab"))
from proof.ports import answers, free_port

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
LAB = ROOT / "target" / "release" / "tailscope-lab"
CONNECTIONS = 8
#: What the design asks of guard's CPU time, as a multiple of nginx's.
CPU_BAR = 1.25
#: And of the latency that it adds at half the knee, in µs.
P50_BAR, P99_BAR = 60, 200

HEAD = """
daemon off; master_process off; worker_processes 1; pid {folder}/{name}.pid;
error_log {folder}/{name}.log; events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000000;
client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
"""
SERVER = 'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{body}"; }} }} }}'
PROXY = """
upstream replicas {{ {servers} keepalive 64; keepalive_requests 1000000000; }}
server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://replicas;
proxy_http_version 1.1; proxy_set_header Connection ""; }} }} }}
"""


def started(stack: ExitStack, *command: object) -> subprocess.Popen[bytes]:
    """A process that ends with the script."""
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def serves(port: int) -> None:
    """Waits until somebody listens."""
    until = time.monotonic() + 10
    while not answers(port):
        assert time.monotonic() < until, f"nobody listens on port {port}"
        time.sleep(0.02)


def load(port: int, rate: int, seconds: float) -> dict[str, float]:
    """Percentiles in µs, and how many requests were answered."""
    url = f"http://127.0.0.1:{port}/"
    command = [LAB, "load", "--http", url, "--json", "--connections", CONNECTIONS]
    command += ["--rate", rate, "--duration", f"{seconds}s"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["errors"] == told["unanswered"] == 0, told
    # Without the generator's own delays.
    served = told["served_ns"]
    return {
        "p50": served["p50"] / 1e3,
        "p99": served["p99"] / 1e3,
        "count": told["count"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nginx", default="nginx", help="the program, of Debian or another")
    parser.add_argument("--rate", type=int, default=3000, help="requests a second")
    parser.add_argument("--seconds", type=float, default=3, help="of a phase")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--no-result", action="store_true", help="write no file")
    arguments = parser.parse_args()
    if not shutil.which(arguments.nginx):
        sys.exit(f"there is no {arguments.nginx}: apt-get install nginx, or name it with --nginx")
    result = Result("guard_cost", "What guard adds to a request, beside nginx as a proxy")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailscope-")))
        folder.chmod(0o755)
        replicas = [free_port(), free_port()]
        for port in replicas:
            server(stack, arguments.nginx, folder, port, SERVER.format(port=port, body="x" * 1024))
        servers = " ".join(f"server 127.0.0.1:{port};" for port in replicas)
        port = free_port()
        proxy = PROXY.format(port=port, servers=servers)
        ways = {
            "direct": (replicas[0], None),
            "nginx": (port, server(stack, arguments.nginx, folder, port, proxy)),
        }
        port = free_port()
        words = [word for at in replicas for word in ("--replica", f"127.0.0.1:{at}")]
        listen = ("--listen", f"127.0.0.1:{port}", "--admin", "none", "--quiet")
        ways["guard"] = (port, started(stack, TAILSCOPE, "guard", *listen, *words).pid)
        serves(port)
        report(result, measure(ways, arguments))
    if not arguments.no_result:
        result.write()


def server(stack: ExitStack, nginx: str, folder: Path, port: int, text: str) -> int:
    """An nginx with this configuration; its process."""
    config = folder / f"{port}.conf"
    config.write_text(HEAD.format(folder=folder, name=port) + text)
    pid = started(stack, nginx, "-c", config, "-p", folder).pid
    serves(port)
    return pid


Found = dict[str, list[dict[str, float]]]


def measure(ways: dict[str, tuple[int, int | None]], arguments: argparse.Namespace) -> Found:
    """Alternating phases; the first round is not counted."""
    found: Found = {name: [] for name in ways}
    for round_ in range(arguments.rounds + 1):
        for name, (port, pid) in ways.items():
            before = cpu_ns(pid) if pid else 0
            seen = load(port, arguments.rate, arguments.seconds)
            seen["cpu"] = (cpu_ns(pid) - before) / seen["count"] / 1e3 if pid else 0
            if round_:
                found[name].append(seen)
    return found


def report(result: Result, found: Found) -> None:
    """The table, and the bars: latencies of nginx too, which show what a proxy takes here."""
    rows = []
    for name, phases in found.items():
        median = {key: statistics.median(one[key] for one in phases) for key in phases[0]}
        cells = [f"{median[key]:.1f}" for key in ("p50", "p99", "cpu")]
        rows.append((name, *cells))
    heads = ("way", "p50, µs", "p99, µs", "CPU time a request, µs")
    where = f"{os.cpu_count()} CPUs, which servers, proxies and load share"
    result.say(f"Medians of {len(found['guard'])} phases on {where}", table(heads, rows))
    pairs = list(zip(found["direct"], found["nginx"], found["guard"], strict=True))
    cpu = spread([guard["cpu"] / nginx["cpu"] for _, nginx, guard in pairs])
    result.bars = [at_most("CPU time a request, guard ÷ nginx", CPU_BAR, cpu, "", 2)]
    said = [f"CPU time {cpu.median:.2f} times nginx's"]
    for key, bar in (("p50", P50_BAR), ("p99", P99_BAR)):
        added = spread([guard[key] - direct[key] for direct, _, guard in pairs])
        result.bars.append(at_most(f"{key} added to a direct request", bar, added, "µs", 0))
        nginx = statistics.median(nginx[key] - direct[key] for direct, nginx, _ in pairs)
        said.append(f"{key} +{added.median:.0f} µs (nginx +{nginx:.0f})")
    result.figures = dict(found)
    result.summary = "a request through guard: " + ", ".join(said)


if __name__ == "__main__":
    main()
