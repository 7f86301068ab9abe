"""Does the agent stay flat while a local user does all that costs it something, again and again?

A user without rights connects to the agent's socket and closes, runs programs that end at once, and
runs programs whose spans have names that no other has. A production program runs spans meanwhile.
Sampled: the agent's memory, descriptors, threads, BPF objects, and CPU time, also for each process
that came and went: how many do depends on what else runs here. Flat means that the last quarter is
no higher than the second.

    .venv/bin/python bench/hostile_soak.py               an hour
    .venv/bin/python bench/hostile_soak.py --minutes 3
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from harness import bench, cpu_ns
from hostile_rig import Attackers, Production, Subject
from soak import GROWTH, judge, sample

#: Without end, side by side: connections, short processes, and names.
COMMANDS = (
    ("connects", "{}/sdk.sock", "0", "{}"),
    ("comes_and_goes", "0", "{}", "/bin/true"),
    ("comes_and_goes", "0", "{}", "{}/forging", "0"),
)
#: What has to come and go at the least.
CONNECTIONS, PROCESSES = 20_000, 10_000
GROWTH |= {"cpu_percent": 1.10, "cpu_us_a_process": 1.10}


def done(folder: Path) -> list[int]:
    """How often each of the attackers has done its part so far."""
    said = [(folder / f"{n}.out").read_text().split() for n in range(len(COMMANDS))]
    return [int(words[-1]) if words and words[-1].isdigit() else 0 for words in said]


def processes(folder: Path) -> int:
    """How many processes have come and gone so far."""
    return sum(done(folder)[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--every", type=float, default=10, help="s between samples [default: 10]")
    arguments = parser.parse_args()
    with bench() as place:
        place.folder.chmod(0o755)
        production, attackers = Production(place), Attackers(place)
        agent = Subject(place, "agent", production, attackers)
        production.begin()
        attackers.start(COMMANDS, watched=True)
        samples = []
        begin = before = time.monotonic()
        used, came = cpu_ns(agent.pid), processes(attackers.folder)
        while time.monotonic() - begin < arguments.minutes * 60:
            time.sleep(arguments.every)
            now, uses = time.monotonic(), cpu_ns(agent.pid)
            come = processes(attackers.folder)
            cpu = {
                "cpu_percent": (uses - used) / (now - before) / 1e7,
                "cpu_us_a_process": (uses - used) / 1e3 / max(come - came, 1),
            }
            samples.append({**sample(agent.pid), **cpu})
            before, used, came = now, uses, come
        connections = done(attackers.folder)[0]
        attackers.stop()
        ended = production.end()
        took = agent.stop()
        attackers.close()
        production.close()
        missing = ended["spans"] - agent.rows().get(ended["pid"], 0)
        print(f"{connections} connections, {came} processes, ended in {took:.2f} s")
        print(f"{missing} of {ended['spans']} production spans are no rows; lost: {agent.lost()}")
        flat = judge(samples)
    enough = connections >= CONNECTIONS and came >= PROCESSES
    if not enough:
        print(f"too short: {CONNECTIONS} connections and {PROCESSES} processes are asked for")
    return 0 if flat and enough and missing <= agent.lost() else 1


if __name__ == "__main__":
    sys.exit(main())
