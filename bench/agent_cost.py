"""What the agent costs at rest: with nobody to record, and with processes that do nothing.

Its own CPU time, as the kernel counts it, over the wall time, in alternating phases. The bar is
0.2 % of one CPU. A scrape every 15 seconds, as Prometheus does, is a phase of its own.

    .venv/bin/python bench/agent_cost.py
    .venv/bin/python bench/agent_cost.py --seconds 10 --rounds 1
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from harness import ROOT

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
LAB = ROOT / "target" / "lab"
BAR = 0.2


def started(stack: ExitStack, command: list[object], err: Path) -> subprocess.Popen[bytes]:
    """A process that ends with the script."""
    file = stack.enter_context(err.open("w"))
    process = subprocess.Popen([str(word) for word in command], stderr=file, stdout=file)
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    return process


def cpu_ns(pid: int) -> int:
    """The CPU time of all its threads that live."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks)


def share(pid: int, seconds: float, url: str | None) -> float:
    """Its CPU time in percent of one CPU; scraped every 15 seconds where there is a url."""
    begin, before = time.monotonic(), cpu_ns(pid)
    while (left := begin + seconds - time.monotonic()) > 0:
        if url:
            with urllib.request.urlopen(url, timeout=10) as answer:
                answer.read()
        time.sleep(min(left, 15))
    return (cpu_ns(pid) - before) / (time.monotonic() - begin) / 1e7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    worst = 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailscope-")))
        os.environ["TAILSCOPE_SOCKET"] = str(folder / "sdk.sock")
        idlers = [
            started(
                stack,
                ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-p", 0, "-U", 0],
                folder / f"{n}",
            )
            for n in range(4)
        ]
        rules = {
            "nobody to record": ['name = "nobody-at-all"'],
            "four idle servers": [f"pid = {idler.pid}" for idler in idlers],
        }
        for round_ in range(arguments.rounds):
            for what, processes in rules.items():
                config = folder / f"{round_}-{len(processes)}.toml"
                config.write_text(
                    "".join(f"[[process]]\n{rule}\n" for rule in processes)
                    + f'[ledger]\nfolder = "{config}.d"\n[metrics]\nlisten = "127.0.0.1:0"\n'
                    + '[record]\nspans = ["syscall:ready..send", "sdk"]\n'
                )
                with ExitStack() as phase:
                    err = folder / f"{config.name}.err"
                    agent = started(phase, [TAILSCOPE, "agent", config], err)
                    while not (url := re.search(r"metrics at (\S+)", err.read_text())):
                        time.sleep(0.1)
                    time.sleep(2)
                    for scraped in (None, url[1]):
                        took = share(agent.pid, arguments.seconds, scraped)
                        worst = max(worst, took)
                        how = "scraped" if scraped else "unscraped"
                        print(f"{what}, {how}: {took:.3f} % of one CPU", flush=True)
    print(f"worst {worst:.3f} %; the bar is {BAR} %: {'met' if worst <= BAR else 'MISSED'}")


if __name__ == "__main__":
    main()
