"""What each tier of a timeline's events costs a busy memcached, and whether its stories are right.

Short phases take turns, in a closed loop of 16 connections: nobody records; `tailscope timeline`
with each tier of `--events`; programs that return at once on all hooks of the last tier. memcached
says itself how many requests it answered. Then a hog takes memcached's CPU for 6 ms at a time, and
each tier tells 50 slow requests: a story is right if it names the wait for the CPU behind the hog
first.

    .venv/bin/python bench/timeline_tiers.py
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from typing import Any

from empty_hooks import empty_hooks
from harness import ROOT, SERVER_CPU, SPARE_CPU, Bench, Result, at_least, bench, spread
from timeline_cost import OTHERS, SYSCALLS, TRACEPOINTS, Server, timeline

#: Each with the least share of the throughput that it leaves.
TIERS = {"scheduler": 0.90, "requests": 0.87, "all": None}
LAB = ROOT / "target" / "release" / "tailscope-lab"
#: Stories that are judged, and how long the hog is given to make them.
STORIES, PATIENCE = 50, 60.0


def take_turns(b: Bench, server: Server, args: argparse.Namespace) -> dict[str, float]:
    """One round: the throughput with each ÷ that right before and after it without."""
    hooks = [name.partition(":")[2] for name in (*TRACEPOINTS, *SYSCALLS, *OTHERS)]
    shares, off = {}, server.rate(args.seconds)
    for name in (*TIERS, "empty"):
        if name == "empty":
            with empty_hooks(hooks):
                on = server.rate(args.seconds)
        else:
            with timeline(b, server, args.memory, "--events", name) as said:
                on = server.rate(args.seconds)
            told = next(line for line in said if " events, " in line)
            shares[f"{name} events"] = int(told.split(" events")[0].replace(",", "")) / on
        again = server.rate(args.seconds)
        shares[name] = on / ((off + again) / 2)
        off = again
    print({name: round(share, 3) for name, share in shares.items()}, flush=True)
    return shares


def stories(b: Bench, server: Server, tier: str) -> list[dict[str, Any]]:
    """Slow requests, as a flight recorder of this tier tells of them."""
    folder = b.folder / f"stories-{tier}"
    words = ["timeline", "-p", str(server.process.pid), "--events", tier, "--keep", "30s"]
    flight = b.start([b.tailscope, *words, "-o", folder], stderr=subprocess.PIPE)
    if "keeping" not in flight.stderr.readline():
        sys.exit(f"the flight recorder did not start: {flight.stderr.read()}")
    begin = time.monotonic()
    while time.monotonic() < begin + PATIENCE:
        time.sleep(3)
        before = len(list(folder.glob("*.timeline")))
        flight.send_signal(signal.SIGUSR1)
        while len(list(folder.glob("*.timeline"))) == before:
            time.sleep(0.1)
        window = max(folder.glob("*.timeline"))
        words = ["timeline", "story", window, "--json", "--slower", "2ms", "-n", str(STORIES)]
        done = subprocess.run([b.tailscope, *words], capture_output=True, text=True, check=True)
        told = json.loads(done.stdout)["stories"]
        if len(told) >= STORIES:
            break
    b.end(flight, signal.SIGINT)
    return told


def is_right(story: dict[str, Any]) -> bool:
    """Whether it names the hog first."""
    first = story["causes"][0]
    return first["kind"] == "waiting_for_cpu" and "tailscope-lab" in first["name"]


def measure(b: Bench, args: argparse.Namespace, result: Result) -> None:
    """The cost, then the stories."""
    server = Server(b)
    to = ["--memcached", f"127.0.0.1:{server.port}", "-d", "3600s"]
    load = b.start(
        [LAB, "load", "--closed-loop", "-c", "16", *to], SERVER_CPU, stdout=subprocess.DEVNULL
    )
    server.rate(1.0)
    rounds = [take_turns(b, server, args) for _ in range(args.rounds)]
    b.end(load)
    found = {name: spread([one[name] for one in rounds]) for name in (*TIERS, "empty")}
    each = {name: spread([one[f"{name} events"] for one in rounds]) for name in TIERS}
    for name, least in TIERS.items():
        if least:
            what = f"memcached with --events {name}, recorded ÷ not"
            result.bars.append(at_least(what, least, found[name], "", 3))
    beside = spread([one["all"] / one["empty"] for one in rounds])
    result.bars.append(at_least("all events ÷ empty programs on their hooks", 0.90, beside, "", 3))
    lines = [f"- {name}: {share.text(3)}" for name, share in found.items()]
    lines += [f"- events a request with {name}: {count.text(1)}" for name, count in each.items()]
    result.say("Throughput ÷ without", "\n".join(lines))
    # Not pinned apart: the hog has to find the server on its CPU.
    b.start([LAB, "load", "--rate", "1000", *to], SERVER_CPU, stdout=subprocess.DEVNULL)
    b.start([LAB, "hog", "--cpu", str(SPARE_CPU), "--duty", "30%", "--period", "20ms"])
    lines = []
    for name in TIERS:
        told = stories(b, server, name)
        right = 100 * sum(map(is_right, told)) / max(1, len(told))
        what = f"--events {name}: stories that name the hog first, of {len(told)}"
        result.bars.append(at_least(what, 95, right, "%"))
        lines.append(f"- {name}: {told[0]['sentence']}" if told else f"- {name}: none")
    result.say("The slowest of each tier", "\n".join(lines))
    result.figures = {"rounds": rounds}
    shares = ", ".join(f"{name} {share.median:.3f}" for name, share in found.items())
    result.summary = f"throughput ÷ without: {shares}"


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a phase")
    parser.add_argument("--memory", default="64MB", help="of the rings")
    parser.add_argument("--no-result", action="store_true", help="write nothing")
    args = parser.parse_args()
    result = Result("timeline_tiers", "What each tier of a timeline's events costs and tells")
    with bench() as b:
        measure(b, args, result)
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
