"""How many collections of a pair of JVMs meet a request, with guard's `--drain-gc` and without it?

Two JVMs with G1 and an eden of 24 MiB make 64 KiB of garbage with each request. An open loop asks
guard. A collection meets a request if it begins while its replica has a request that it has not
answered. The first seconds are not counted, while guard and the JVMs warm up.

    .venv/bin/python bench/guard_drains.py
    .venv/bin/python bench/guard_drains.py --seconds 60 --rate 800 --no-result
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack

from harness import ROOT, Result, at_most, table

sys.path.insert(0, str(ROOT / "lab"))
from proof.ports import answers, free_port

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
LAB = ROOT / "target" / "release" / "tailscope-lab"
CLASSES = ROOT / "target" / "java" / "tests"
FLAGS = ("-XX:+UseG1GC", "-Xmx128m", "-Xmn24m")
THINK_US = 2000
WARM_UP = 5
#: Percent of the collections that may meet a request.
BAR = 1


def started(stack: ExitStack, port: int, *command: object) -> None:
    """A process that ends with the script, once it serves on its port."""
    process = subprocess.Popen(list(map(str, command)))
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    until = time.monotonic() + 30
    while not answers(port):
        assert time.monotonic() < until, f"nobody listens on port {port}"
        time.sleep(0.02)


def load(port: int, rate: int, seconds: float) -> dict:
    """What the load generator says."""
    command = [LAB, "load", "--http", f"http://127.0.0.1:{port}/garbage", "--json"]
    command += ["--connections", 16, "--rate", rate, "--duration", f"{seconds}s"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["errors"] == told["unanswered"] == 0, told
    return told


def counted(admin: int) -> dict[str, int]:
    """Collections so far: all of them, those that guard asked for, those that met a request."""

    def read(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}{path}", timeout=30) as answer:
            return answer.read().decode()

    replicas = json.loads(read("/status"))["replicas"]
    lines = read("/metrics").splitlines()
    begun = [line for line in lines if "hazards_total{" in line and '"collection"' in line]
    return {
        "all": sum(int(line.split()[-1]) for line in begun),
        "asked": sum(one["collections_asked"] for one in replicas),
        "met": sum(one["collections_met"] for one in replicas),
    }


def measure(java: str, rate: int, seconds: float, *options: str) -> dict[str, float]:
    """One phase: counts of collections, and the largest latency in ms."""
    with ExitStack() as stack:
        ports = [free_port(), free_port()]
        for port in ports:
            program = ("-cp", CLASSES, "tailscope.Answering", port, "replica", THINK_US)
            started(stack, port, java, *FLAGS, *program)
        port, admin = free_port(), free_port()
        words = [word for one in ports for word in ("--replica", f"127.0.0.1:{one}")]
        listen = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--quiet")
        started(stack, port, TAILSCOPE, "guard", *listen, "--budget", "0", *options, *words)
        load(port, rate, WARM_UP)
        before = counted(admin)
        told = load(port, rate, seconds)
        after = counted(admin)
    found: dict[str, float] = {name: after[name] - before[name] for name in after}
    latency = told["served_ns"]
    return found | {name: latency[name] / 1e6 for name in ("p99", "p999", "max") if name in latency}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--java", default="java")
    parser.add_argument("--rate", type=int, default=2000, help="requests a second")
    parser.add_argument("--seconds", type=float, default=40, help="of each of the two phases")
    parser.add_argument("--no-result", action="store_true", help="write no file")
    arguments = parser.parse_args()
    result = Result("guard_drains", "Collections of a pair of JVMs that guard drains")
    ways: dict[str, tuple[str, ...]] = {"without": (), "with": ("--drain-gc",)}
    found = {
        way: measure(arguments.java, arguments.rate, arguments.seconds, *options)
        for way, options in ways.items()
    }
    rows = [
        (way, *(f"{one[name]:.0f}" for name in ("all", "asked", "met")), f"{one['max']:.1f}")
        for way, one in found.items()
    ]
    head = ("--drain-gc", "collections", "asked for", "met a request", "largest latency, ms")
    result.say("Collections", table(head, rows))
    drained = found["with"]
    met = 100 * drained["met"] / max(drained["all"], 1)
    result.bars = [at_most("collections of a drained pair that meet a request", BAR, met, "%", 1)]
    result.figures = {"found": found}
    result.summary = (
        f"{drained['met']:.0f} of {drained['all']:.0f} collections of a drained pair meet a "
        f"request; without: {found['without']['met']:.0f} of {found['without']['all']:.0f}"
    )
    if not arguments.no_result:
        result.write()


if __name__ == "__main__":
    main()
