"""What guard takes from the tail when replicas pause and no hazard shows it.

Two Node servers stop answering for 50 ms now and then: each computes, as in a long collection or a
request that hogs the loop. Their threads run, so the kernel sees no hazard. The lab's load is
an open loop, in alternating phases: through a guard that only counts (`--dry-run`), which picks the
replica with the fewest outstanding requests, and through one that steers and hedges.

    make build && apt-get install nodejs
    .venv/bin/python bench/guard_silence.py
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from contextlib import ExitStack

from guard_cost import LAB, TAILSCOPE, free_port, serves, started
from guard_hazards import status
from harness import at_most, bars_table, spread, table

#: One request in how many may be sent once more.
BUDGET = 0.01
SERVER = """
const mean = Number(process.argv[2]);
const plan = () => setTimeout(pause, -Math.log(1 - Math.random()) * mean);
function pause() {
  const end = process.hrtime.bigint() + 50000000n;
  while (process.hrtime.bigint() < end);
  plan();
}
plan();
require("http").createServer((_, answer) => answer.end("x".repeat(1000)))
  .listen(Number(process.argv[1]), "127.0.0.1");
"""


def phase(port: int, rate: int, seconds: float) -> dict[str, float]:
    """Percentiles in ms, without the generator's own delays."""
    url = f"http://127.0.0.1:{port}/"
    command = [LAB, "load", "--http", url, "--json", "--connections", 16]
    command += ["--rate", rate, "--duration", f"{seconds}s"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["errors"] == told["unanswered"] == 0, told
    return {name: told["served_ns"][name] / 1e6 for name in ("p50", "p99", "p999", "max")}


def guard(stack: ExitStack, replicas: list[int], *options: str) -> tuple[int, int]:
    """Where it listens, and where its status is."""
    port, admin = free_port(), free_port()
    words = [word for at in replicas for word in ("--replica", f"127.0.0.1:{at}")]
    listen = ("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}")
    started(stack, TAILSCOPE, "guard", *listen, "--control", "none", *words, *options)
    serves(port)
    return port, admin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=600, help="requests a second")
    parser.add_argument("--pause-every", type=float, default=2.5, help="seconds, of each replica")
    parser.add_argument("--seconds", type=float, default=8, help="of a phase")
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    if not shutil.which("node"):
        sys.exit("there is no node: apt-get install nodejs")
    with ExitStack() as stack:
        replicas = [free_port(), free_port()]
        for port in replicas:
            started(stack, "node", "-e", SERVER, port, 1000 * arguments.pause_every)
            serves(port)
        ways = {
            "counts only": guard(stack, replicas, "--dry-run"),
            "guards": guard(stack, replicas, "--budget", f"{BUDGET:.0%}"),
        }
        found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
        for number in range(arguments.rounds + 1):
            for name, (port, _) in ways.items():
                one = phase(port, arguments.rate, arguments.seconds)
                if number:  # in the first, the servers are still being compiled
                    found[name].append(one)
        report(found, status(ways["guards"][1]))


def report(found: dict[str, list[dict[str, float]]], told: dict) -> None:
    rows = [
        (percentile, *(spread([one[percentile] for one in phases]).text(2) for phases in pair))
        for percentile in ("p50", "p99", "p999", "max")
        for pair in [found.values()]
    ]
    print(table(("what", *(f"{name}, ms" for name in found)), rows))
    counted, guarded = found.values()
    ratios = [b["p999"] / a["p999"] for a, b in zip(counted, guarded, strict=True)]
    share = 100 * sum(told["hedges"].values()) / told["counts"]["requests"]
    print(
        bars_table(
            [
                at_most("p99.9: guarded ÷ not", 0.5, spread(ratios).median, "", 3),
                at_most("extra requests", 100 * BUDGET, share, "%", 3),
            ]
        )
    )
    print({name: count for name, count in told["hedges"].items() if count})


if __name__ == "__main__":
    main()
