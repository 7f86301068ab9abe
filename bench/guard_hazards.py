"""What guard takes from the tail when replicas pause: the largest latency that clients see.

Two JVMs answer on this machine (tests/java/Answering.java). The lab's load sends 1,000 requests a
second, in an open loop. In each iteration one replica meets a hazard: it collects all
its garbage, or it is stopped for 50 ms. Iterations alternate: the load asks that replica directly,
or guard in front of both. After Tailor's experiment (thesis of 2019, 4.4), with a smaller server.

    make build target/java/tests/.made
    .venv/bin/python bench/guard_hazards.py
    .venv/bin/python bench/guard_hazards.py --java /path/to/java --rounds 5
    .venv/bin/python bench/guard_hazards.py --rounds 7 --picture demo/guard.svg
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import guard_picture
from harness import ROOT, Bar, at_most, bars_table, spread, table

sys.path.insert(0, str(ROOT / "lab"))
from proof.ports import answers, free_port

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
LAB = ROOT / "target" / "release" / "tailscope-lab"
CLASSES = ROOT / "target" / "java" / "tests"
RATE, STOP = 1000, 0.05
#: An iteration, and when the hazard comes; the load itself takes up to a second to begin or to end.
SECONDS, STRIKE = 2.0, 1.5
#: At most this share of the unguarded latency, and of extra requests.
TAIL_BAR, BUDGET = 1 / 9, 0.01


class Replica:
    """A JVM that answers after 0.2 ms."""

    def __init__(self, stack: ExitStack, java: str) -> None:
        self.port = free_port()
        command = [java, "-Xmx128m", "-XX:+UseSerialGC", "-cp", CLASSES]
        command += ["tailscope.Answering", self.port, "replica", 200]
        self.process = subprocess.Popen(list(map(str, command)))
        stack.callback(self.process.wait, 30)
        stack.callback(self.process.kill)
        serves(self.port)

    def collect(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/collect")
        connection.getresponse().read()
        connection.close()

    def stop(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)
        time.sleep(STOP)
        os.kill(self.process.pid, signal.SIGCONT)


def serves(port: int) -> None:
    """Waits until somebody listens."""
    until = time.monotonic() + 30
    while not answers(port):
        assert time.monotonic() < until, f"nobody listens on port {port}"
        time.sleep(0.02)


def iteration(port: int, strike: Callable[[], None]) -> dict[str, float]:
    """The largest latency of one iteration, in ms: since requests were due, and since the send."""
    timer = threading.Timer(STRIKE, strike)
    timer.start()
    url = f"http://127.0.0.1:{port}/"
    command = [LAB, "load", "--http", url, "--json", "--connections", 16]
    command += ["--rate", RATE, "--duration", f"{SECONDS}s"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    timer.join()
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["errors"] == told["unanswered"] == 0, told
    return {
        "due": told["latency_ns"]["max"] / 1e6,
        "served": told["served_ns"]["max"] / 1e6,
        "p99": told["served_ns"]["p99"] / 1e6,
    }


def status(admin: int) -> dict:
    connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=30)
    connection.request("GET", "/status")
    return json.loads(connection.getresponse().read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--java", default="java")
    parser.add_argument("--rounds", type=int, default=20, help="iterations of each kind")
    parser.add_argument("--picture", type=Path, help="SVG of each iteration's largest latency")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        pair = [Replica(stack, arguments.java) for _ in range(2)]
        port, admin = free_port(), free_port()
        words = [word for one in pair for word in ("--replica", f"127.0.0.1:{one.port}")]
        listen = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", "--quiet")
        command = [TAILSCOPE, "guard", *listen, "--budget", f"{BUDGET:.0%}", *words]
        guard = subprocess.Popen(list(map(str, command)))
        stack.callback(guard.wait, 30)
        stack.callback(guard.terminate)
        serves(port)
        for at in (pair[0].port, pair[1].port, port):  # until the JVMs have compiled
            iteration(at, lambda: None)
        strikes = {"collection": pair[0].collect, f"stop of {STOP * 1e3:.0f} ms": pair[0].stop}
        found: dict[str, list[tuple[dict, dict]]] = {name: [] for name in strikes}
        before = status(admin)
        for _ in range(arguments.rounds):
            for name, strike in strikes.items():
                pairs = iteration(pair[0].port, strike), iteration(port, strike)
                found[name].append(pairs)
        show(found, before, status(admin))
        if arguments.picture:
            arguments.picture.parent.mkdir(exist_ok=True)
            largest = {
                name: [(one[0]["served"], one[1]["served"]) for one in pairs]
                for name, pairs in found.items()
            }
            arguments.picture.write_text(guard_picture.drawn(largest))
            print(f"picture: {arguments.picture}")


def show(found: dict[str, list[tuple[dict, dict]]], before: dict, after: dict) -> None:
    rows, bars = [], []
    for name, pairs in found.items():
        for key in ("due", "served", "p99"):
            direct, guarded = ([one[i][key] for one in pairs] for i in (0, 1))
            medians = statistics.median(direct), statistics.median(guarded)
            rows.append((name, key, f"{medians[0]:.2f}", f"{medians[1]:.2f}"))
        ratio = statistics.median(one[1]["served"] for one in pairs) / statistics.median(
            one[0]["served"] for one in pairs
        )
        bars.append(at_most(f"largest latency, {name}: guarded ÷ not", TAIL_BAR, ratio, "", 3))
    print(table(("hazard", "what", "direct, ms", "guarded, ms"), rows))
    extra = sum(after["hedges"].values()) - sum(before["hedges"].values())
    requests = after["counts"]["requests"] - before["counts"]["requests"]
    share = at_most("extra requests", 100 * BUDGET, 100 * extra / requests, "%", 3)
    # A wait for a CPU is a hazard only after 4 ms.
    at_once = [one for one in after["latest_hedges"] if one["trigger"] in ("collection", "stopped")]
    ages = [one["hazard_age_us"] for one in at_once]
    bars.append(share)
    if ages:
        age = spread(ages)
        bars.append(Bar("age of the hazard when hedged", "none", f"{age.text(0)} µs", True))
    print(bars_table(bars))
    print({name: count for name, count in after["counts"].items() if count})


if __name__ == "__main__":
    main()
