"""Do the gaps of a timeline's stories sum to the latency that the client saw?

One client beside the server on the same machine asks memcached for one value after the other, under
a hog that makes some of them slow, and reads the kernel's clock before each send and after each
receive. A request of the window is that of the client within whose time it lies; it is right if its
latency differs by at most 2 % or 20 µs, whichever is more. The client spins, so that it sees the
answer when it could, and its own wake-up is not in its figure; its system calls still are.

    .venv/bin/python bench/timeline_truth.py
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

from harness import ROOT, SERVER_CPU, SPARE_CPU, Result, at_least, bench, spread
from timeline_cost import Server

#: A wrong figure may be so much off, and no more.
SHARE, NS = 0.02, 20_000


def ask(server: Server, seconds: float) -> list[tuple[int, int]]:
    """When each request began and ended for the client, in ns of CLOCK_MONOTONIC."""
    os.sched_setaffinity(0, {SERVER_CPU})
    # Nobody but interrupts may come between an answer and the look at the clock.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    times = []
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(False)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begin = time.monotonic_ns()
            client.send(b"get nothing\r\n")
            while True:
                try:
                    client.recv(64)
                    break
                except BlockingIOError:
                    continue
            times.append((begin, time.monotonic_ns()))
            time.sleep(0.0005)
    return times


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=6.0)
    args = parser.parse_args()
    result = Result("timeline_truth", "Whether a story's gaps sum to the client's latency")
    with bench() as b:
        server = Server(b)
        lab = ROOT / "target" / "release" / "tailscope-lab"
        b.start([lab, "hog", "--cpu", str(SPARE_CPU), "--duty", "20%", "--period", "20ms"])
        command = [b.tailscope, "timeline", "-p", str(server.process.pid), "--keep", "60s"]
        flight = b.start([*command, "-o", b.folder / "w"], stderr=subprocess.PIPE)
        if "keeping" not in flight.stderr.readline():
            sys.exit(f"the flight recorder did not start: {flight.stderr.read()}")
        times = ask(server, args.seconds)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        b.end(flight, signal.SIGINT)
        (window,) = (b.folder / "w").glob("*.timeline")
        words = ["timeline", "story", window, "--json", "--slower", "1us", "-n", "1000000"]
        done = subprocess.run([b.tailscope, *words], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    begins = [begin for begin, _ in times]
    off, slow_off, matched = [], [], 0
    for story in told["stories"]:
        at = bisect.bisect_right(begins, story["begin_ns"]) - 1
        if at < 0 or story["begin_ns"] > times[at][1] or not story["from_packet"]:
            continue
        matched += 1
        client = times[at][1] - times[at][0]
        wrong = abs(client - story["latency_ns"])
        off.append((wrong, wrong <= max(SHARE * client, NS)))
        if client >= 1_000_000:
            slow_off.append(off[-1])
    right = 100 * sum(ok for _, ok in off) / max(1, len(off))
    slow_right = 100 * sum(ok for _, ok in slow_off) / max(1, len(slow_off))
    result.bars += [
        at_least("requests whose gaps sum to the client's latency", 99, right, "%"),
        at_least("the same of those of 1 ms or longer", 99, slow_right, "%"),
        at_least("requests of the client that have a story", 99, 100 * matched / len(times), "%"),
    ]
    differences = spread([wrong / 1000 for wrong, _ in off])
    result.say(
        "Differences",
        f"- {len(times)} requests, {matched} with a story, {len(slow_off)} of 1 ms or longer\n"
        f"- off by {differences.text(1)} µs",
    )
    result.figures = {"requests": len(times), "matched": matched, "right": right}
    result.write()


if __name__ == "__main__":
    main()
