"""Does the agent hold for long? 200,000 spans a second from programs that come and go.

Two annotated programs run spans at a set rate, others start, run a known number of spans and end.
Each program says how many spans it ended, so that at the end
every one is a row or a loss: `seen` of all ledgers together is what they say, and rows + losses is
`seen`. Meanwhile: the agent's memory, descriptors, threads, and BPF programs, maps and links,
sampled; flat means that the last quarter is no higher than the second.

    .venv/bin/python bench/soak.py                 30 minutes
    .venv/bin/python bench/soak.py --minutes 3
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from harness import ROOT

TAILSCOPE = ROOT / "target" / "release" / "tailscope"
LAB = ROOT / "target" / "lab"
RATE = 200_000
SAMPLE_EVERY = 5.0
#: What counts as flat: the last quarter's median over the second's.
GROWTH = {"rss_kib": 1.10, "fds": 1.0, "threads": 1.0, "bpf": 1.0}


@dataclass
class Programs:
    """What runs, and what those that ended said."""

    folder: Path
    running: list[tuple[subprocess.Popen[str], Path]] = field(default_factory=list)
    spans: int = 0
    ended: int = 0

    def start(self, *command: object) -> None:
        out = self.folder / f"out-{time.monotonic_ns()}"
        with out.open("w") as file:
            process = subprocess.Popen([str(word) for word in command], stdout=file, text=True)
        self.running.append((process, out))

    def reap(self, *, stop: bool = False) -> None:
        """Counts the spans of those that have ended; with `stop`, ends them."""
        for process, out in list(self.running):
            if stop and process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if (process.wait(60) if stop else process.poll()) is None:
                continue
            text = out.read_text()
            self.spans += json.loads(text[text.index("{") :])["spans"]
            self.ended += 1
            out.unlink()
            self.running.remove((process, out))


def pace(rate: float) -> int:
    """How long a loop must be for so many spans a second on one thread, which shares its CPU."""
    command = [LAB / "loopbench", "--seconds", "1", "--iterations", "10000"]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    per_iteration = told["p50_ns"] / 10_000
    return max(1, int(0.8 * 1e9 / rate / per_iteration))


def held(pid: int) -> set[tuple[str, int]]:
    """The BPF programs, maps and links that the agent has open."""
    found = set()
    for descriptor in Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(FileNotFoundError):
            text = descriptor.read_text()
            found |= {(k, int(n)) for k, n in re.findall(r"(prog|map|link)_id:\s*(\d+)", text)}
    return found


def still_there(objects: set[tuple[str, int]]) -> set[tuple[str, int]]:
    """Those of them that are in the kernel after at most 20 seconds, which frees them later."""
    deadline = time.monotonic() + 20
    while True:
        listed = set()
        for kind in ("prog", "map", "link"):
            done = subprocess.run(["bpftool", "--json", kind, "list"], capture_output=True)
            listed |= {(kind, item["id"]) for item in json.loads(done.stdout or "[]")}
        left = objects & listed
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.5)


def sample(pid: int) -> dict[str, float]:
    """What the agent holds now."""
    status = Path(f"/proc/{pid}/status").read_text()
    rss = int(re.search(r"VmRSS:\s*(\d+)", status)[1])
    return {
        "rss_kib": rss,
        "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
        "bpf": len(held(pid)),
    }


def figure(url: str, name: str) -> float:
    """One figure of /metrics."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise KeyError(name)


def ledgers(folder: Path) -> tuple[int, int, dict[str, int]]:
    """Rows, spans that were seen, and losses of all ledgers together."""
    rows = seen = 0
    lost: dict[str, int] = {}
    for path in sorted(folder.glob("2*Z-*/ledger.json")):
        told = json.loads(path.read_text())
        assert told["state"] == "done", path
        rows, seen = rows + told["rows"], seen + told["seen"]
        for place, count in told["lost"].items():
            lost[place] = lost.get(place, 0) + count
    return rows, seen, {place: count for place, count in lost.items() if count}


def judge(samples: list[dict[str, float]]) -> bool:
    """Prints whether each figure stayed flat."""
    quarter = max(1, len(samples) // 4)
    flat = True
    for name, most in GROWTH.items():
        early = statistics.median(s[name] for s in samples[quarter : 2 * quarter])
        late = statistics.median(s[name] for s in samples[-quarter:])
        fine = late <= early * most
        flat &= fine
        top = max(s[name] for s in samples)
        verdict = "flat" if fine else "GREW"
        print(f"{name}: second quarter {early:g}, last {late:g}, most {top:g}: {verdict}")
    return flat


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=int, default=RATE)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailscope-")))
        os.environ["TAILSCOPE_SOCKET"] = str(folder / "sdk.sock")
        config = folder / "agent.toml"
        config.write_text(
            f'[[process]]\nexe = "{LAB / "loopbench"}"\n[record]\nspans = ["sdk"]\n'
            f'[ledger]\nfolder = "{folder / "ledgers"}"\nrotate_age = "20s"\nquota = "20GB"\n'
            '[metrics]\nlisten = "127.0.0.1:0"\n'
        )
        iterations = pace(arguments.rate / 2)  # before there is somebody who records it
        err = folder / "err"
        agent = subprocess.Popen([TAILSCOPE, "agent", config], stderr=err.open("w"))
        stack.callback(agent.wait, 60)
        stack.callback(agent.terminate)
        while not (url := re.search(r"metrics at (\S+)", err.read_text())):
            time.sleep(0.1)
        programs = Programs(folder)
        stack.callback(programs.reap, stop=True)
        for _ in range(2):
            programs.start(LAB / "loopbench", "--seconds", 1 << 20, "--iterations", iterations)
        samples: list[dict[str, float]] = []
        begin = time.monotonic()
        rows_before = figure(url[1], "tailscope_spans_total")
        while (passed := time.monotonic() - begin) < arguments.minutes * 60:
            for _ in range(3):
                programs.start(LAB / "loopbench", "--spans", 500, "--iterations", 100)
            time.sleep(SAMPLE_EVERY)
            programs.reap()
            samples.append(sample(agent.pid))
        rate = (figure(url[1], "tailscope_spans_total") - rows_before) / passed
        programs.reap(stop=True)
        while figure(url[1], "tailscope_processes") > 0:
            time.sleep(0.1)
        cpu = figure(url[1], "process_cpu_seconds_total") / (time.monotonic() - begin)
        objects = held(agent.pid)
        agent.terminate()
        agent.wait(60)
        rows, seen, lost = ledgers(folder / "ledgers")
        count = len(list((folder / "ledgers").glob("2*Z-*")))
        print(
            f"{passed:.0f} s, {rate:,.0f} spans/s, {programs.ended} programs, {count} ledgers, "
            f"agent {cpu:.1%} of one CPU"
        )
        missing = (
            seen
            - rows
            - sum(
                n for place, n in lost.items() if place in ("ring_full", "region_full", "unwritten")
            )
        )
        print(f"programs ended {programs.spans:,} spans; seen {seen:,}; rows {rows:,}; lost {lost}")
        print(f"unseen {programs.spans - seen:,}; seen, and neither row nor loss: {missing:,}")
        flat = judge(samples)
        left = still_there(objects)
        print(f"BPF objects: {len(objects)}, left behind: {len(left)}")
        return 0 if flat and missing == 0 and programs.spans == seen and not left else 1


if __name__ == "__main__":
    sys.exit(main())
