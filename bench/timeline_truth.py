"""Do the gaps of a timeline's stories sum to the latency that the client saw?

One client beside the server on the same machine asks memcached for one value after the other, under
a hog that makes some of them slow, and reads the kernel's clock before each send and after each
receive. A request of the window is that of the client within whose time it lies; it is right if its
latency differs by at most 2 % or 20 µs, whichever is more. The story ends with the client's
receive. Two kinds of client take turns: one that spins under a real-time priority, and one that
waits in its receive, as clients do, so that its own wake-up is in both figures.

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
from dataclasses import dataclass
from typing import Any

from harness import ROOT, SERVER_CPU, SPARE_CPU, Result, at_least, bench, spread
from timeline_cost import Server

Story = dict[str, Any]

#: A wrong figure may be so much off, and no more.
SHARE, NS = 0.02, 20_000


@dataclass(frozen=True)
class Match:
    """A request as the client saw it, and as it is told."""

    begin: int
    end: int
    story: Story

    def latency(self) -> int:
        """As the client saw it, in ns."""
        return self.end - self.begin

    def before(self) -> int:
        """From the client's look at the clock to the story's begin, in ns."""
        return self.story["begin_ns"] - self.begin

    def after(self) -> int:
        """From the story's end to the client's next look."""
        return self.end - self.story["begin_ns"] - self.story["latency_ns"]

    def off(self) -> int:
        """By how much the story's latency is wrong."""
        return abs(self.latency() - self.story["latency_ns"])

    def right(self) -> bool:
        """Whether that is allowed."""
        return self.off() <= max(SHARE * self.latency(), NS)


def ask(server: Server, seconds: float, spins: bool) -> list[tuple[int, int]]:
    """When each request began and ended for the client, in ns of CLOCK_MONOTONIC."""
    os.sched_setaffinity(0, {SERVER_CPU})
    # Nobody but interrupts may come between an answer and the look at the clock.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    times = []
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setblocking(not spins)
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
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
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
        spun = ask(server, args.seconds, spins=True)
        waited = ask(server, args.seconds, spins=False)
        b.end(flight, signal.SIGINT)
        (window,) = (b.folder / "w").glob("*.timeline")
        words = ["timeline", "story", window, "--json", "--slower", "1us", "-n", "1000000"]
        done = subprocess.run([b.tailscope, *words], capture_output=True, text=True, check=True)
    stories = json.loads(done.stdout)["stories"]
    for name, times in (("spins", spun), ("waits", waited)):
        judge(name, times, stories, result)
    right = ", ".join(f"{name} {found['right']:.1f}" for name, found in result.figures.items())
    result.summary = f"requests whose gaps sum to the client's latency, %: the client {right}"
    result.write()


def judge(name: str, times: list[tuple[int, int]], stories: list[Story], result: Result) -> None:
    """Holds the stories of one client against its own clock."""
    begins = [begin for begin, _ in times]
    found: list[Match] = []
    for story in stories:
        at = bisect.bisect_right(begins, story["begin_ns"]) - 1
        if at >= 0 and story["begin_ns"] <= times[at][1] and story["from_packet"]:
            found.append(Match(*times[at], story))
    right = 100 * sum(match.right() for match in found) / max(1, len(found))
    slow = [match for match in found if match.latency() >= 1_000_000]
    slow_right = 100 * sum(match.right() for match in slow) / max(1, len(slow))
    told = 100 * len(found) / len(times)
    result.bars += [
        at_least(f"a client that {name}: gaps sum to its latency", 99, right, "%"),
        at_least(f"a client that {name}: of those of 1 ms or longer", 99, slow_right, "%"),
        at_least(f"a client that {name}: requests with a story", 99, told, "%"),
    ]
    wrong = sorted((m for m in found if not m.right()), key=Match.off, reverse=True)
    worst = [f"{match.before() / 1000:.0f} and {match.after() / 1000:.0f}" for match in wrong[:8]]
    lines = [
        f"- {len(times)} requests, {len(found)} with a story, {len(slow)} of 1 ms or longer",
        f"- off by {spread([m.off() / 1000 for m in found]).text(1)} µs: before the story's begin "
        f"{spread([m.before() / 1000 for m in found]).text(1)}, after its end "
        f"{spread([m.after() / 1000 for m in found]).text(1)}",
        f"- {len(wrong)} are off by more than allowed; the worst, in µs before the begin and after "
        f"the end: {'; '.join(worst)}",
    ]
    result.say(f"A client that {name}", "\n".join(lines))
    result.figures[name] = {
        "requests": len(times),
        "matched": len(found),
        "right": right,
        "wrong_before_us": [m.before() / 1000 for m in wrong],
        "wrong_after_us": [m.after() / 1000 for m in wrong],
        "to_client": sum(m.story["to_client"] for m in found),
    }


if __name__ == "__main__":
    main()
