"""Do a timeline's stories name what held up slow requests of a search server?

The four hazards of Tailor (§4.4), in Lucene: six workers and a coordinator that asks them all over
TCP (lab/search), clients in an open loop with exponential gaps. One worker is struck; the story of
the client's request, at the coordinator, has to lead there. A request counts if it was slow and, by
the struck worker's own clock or its JVM's own log, the hazard had most of its time:

- nagle: the worker's answer went out in two writes meanwhile, and it took 35 ms or more
- pages: half of its time or more was CPU time of the worker, touching fresh memory in huge pages
- garbage: at least half of its time the worker's JVM collected
- restart: at least half of its time the worker, just started again, was with it, and its JVM loaded
  50 classes or more meanwhile. What the worker was asked before this request began is another one's

    make search && .venv/bin/python bench/timeline_hazards.py
"""

from __future__ import annotations

import argparse
import bisect
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import ROOT, Bench, Result, at_least, bench, known
from search_server import free_ports, index, java, need_built, serves

Span = tuple[int, int]
Story = dict[str, Any]

WORKERS = 6
#: Which of them is struck. Others are asked before it and after it.
STRUCK = 2
DOCUMENTS = 30_000
#: Requests that count, of each hazard.
WANTED = 50
#: How long one hazard may take to strike as often, in s.
PATIENCE = 150
#: Requests a second, by two clients. Acknowledgements are delayed only on a connection where the
#: next question follows an answer within 40 ms, so for Nagle they ask more often.
RATE, RATE_OF_NAGLE = 30, 100
#: Which requests are slow, in ns, and which story is right: its first cause's kinds, and words.
HAZARDS: dict[str, tuple[int, str, str]] = {
    "nagle": (35_000_000, "held_by_tcp", "Nagle"),
    # Others wait for the CPU that the faults have: their story says so too.
    "pages": (5_000_000, "page_fault waiting_for_cpu", "page faults"),
    # Others wait for the CPU that a collection has: their story says so too.
    "garbage": (3_000_000, "jvm_pause waiting_for_cpu", "stop-the-world collection"),
    # Others wait for the CPU that whoever loads has, or for that thread: their story says so too.
    "restart": (5_000_000, "class_loading waiting_for_cpu", "loading or initialising classes"),
}


class Search:
    """The workers, the coordinator and their clients, with one hazard."""

    def __init__(self, b: Bench, index: Path, hazard: str, rate: int) -> None:
        self.b, self.hazard = b, hazard
        self.logs = b.folder / f"logs-{hazard}"
        self.logs.mkdir()
        self.coordinator, *self.ports = free_ports(WORKERS + 1)
        self.processes = [self.worker(number, index / str(number)) for number in range(WORKERS)]
        for port in self.ports:
            serves(port)
        words = ["coordinator", *map(str, (self.coordinator, *self.ports))]
        self.processes.append(b.start(java(words)))
        serves(self.coordinator)
        lab = ROOT / "target" / "release" / "tailscope-lab"
        url = f"http://127.0.0.1:{self.coordinator}/"
        load = [lab, "load", "--http", url, "--rate", str(rate), "-c", "2", "-d", "3600s"]
        # Not one of those that are watched.
        self.load = b.start(load, stdout=subprocess.DEVNULL)

    def worker(self, number: int, index: Path) -> subprocess.Popen[str]:
        """One worker; who is to be restarted has a shell above it, which starts it again."""
        kind = self.hazard if number == STRUCK else "none"
        log = self.logs / ("struck" if number == STRUCK else f"worker-{number}")
        options = []
        if number == STRUCK and self.hazard == "garbage":
            options = [f"-Xlog:gc:file={self.logs}/collections-%p:tn"]
        if number == STRUCK and self.hazard == "restart":
            options = [f"-Xlog:class+load:file={self.logs}/classes-%p:tn"]
        words = ["worker", str(self.ports[number]), str(index), kind, "8", str(log)]
        command = java(*options, words)
        if number == STRUCK and self.hazard == "restart":
            again = 'while true; do setpriv --pdeathsig KILL -- "$@"; done'
            command = ["bash", "-c", again, "restarts", *command]
        if number == STRUCK and self.hazard == "pages":
            # malloc's own threshold would rise at the first free, and memory would not be fresh.
            tuned = ["MALLOC_MMAP_THRESHOLD_=131072", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"]
            command = ["env", *tuned, *command]
        return self.b.start(command, stderr=subprocess.DEVNULL)

    def restart(self) -> None:
        """Ends the struck worker, which is started again, and waits until it serves."""
        shell = self.processes[STRUCK].pid
        children = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGKILL)
        while set(Path(f"/proc/{shell}/task/{shell}/children").read_text().split()) & set(children):
            time.sleep(0.02)
        serves(self.ports[STRUCK])

    def close(self) -> None:
        """Ends all of it."""
        self.b.end(self.load)
        for process in self.processes:
            self.b.end(process, signal.SIGKILL)

    def truth(self) -> Callable[[Story], bool]:
        """Whether the hazard had a request, by the worker's own log, or its JVM's."""
        if self.hazard == "garbage":
            found = self.lines("collections-*", r"\[(\d+)ns\].* Pause .* ([\d.]+)ms$")
            struck = [(int(at - ms * 1e6), int(at)) for at, ms in found]
            return lambda s: sum(overlap(span(s), each) for each in struck) >= s["latency_ns"] / 2
        text = (self.logs / "struck").read_text()
        found = re.findall(r"^(\d+) (\d+) (\d+)\n", text, re.MULTILINE)
        struck = [(int(begin), int(end), int(cpu)) for begin, end, cpu in found]

        def cpu_within(story: Story) -> float:
            begin, end = span(story)
            return sum(cpu for a, z, cpu in struck if begin < a and z < end)

        if self.hazard == "restart":
            loaded = sorted(at for at, _ in self.lines("classes-*", r"\[(\d+)ns\]()"))
            first = [
                (a, z)
                for a, z, _ in struck
                if bisect.bisect(loaded, z) - bisect.bisect(loaded, a) >= 50
            ]

            def first_of(story: Story) -> int:
                own = (each for each in first if each[0] >= span(story)[0])
                return sum(overlap(span(story), each) for each in own)

            return lambda s: first_of(s) >= s["latency_ns"] / 2
        if self.hazard == "nagle":
            return lambda s: any(a < span(s)[1] and z > span(s)[0] for a, z, _ in struck)
        return lambda s: cpu_within(s) >= s["latency_ns"] / 2

    def lines(self, files: str, pattern: str) -> Iterator[tuple[float, float]]:
        """The two numbers of each line that fits."""
        for path in self.logs.glob(files):
            for match in re.finditer(pattern, path.read_text(), re.MULTILINE):
                yield float(match[1]), float(match[2] or 0)


def span(story: Story) -> Span:
    """From when to when a request was, in ns of CLOCK_MONOTONIC."""
    return story["begin_ns"], story["begin_ns"] + story["latency_ns"]


def overlap(one: Span, other: Span) -> int:
    """How long both were."""
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


class Recorder:
    """A flight recorder of all of them."""

    def __init__(self, b: Bench, search: Search) -> None:
        self.b = b
        self.control = b.folder / f"control-{search.hazard}"
        pids = [word for process in search.processes for word in ("-p", str(process.pid))]
        options = ["--keep", "10s", "--memory", "256MB", "--control", self.control]
        folder = b.folder / f"windows-{search.hazard}"
        command = [b.tailscope, "timeline", *pids, *options, "-o", folder]
        self.process = b.start(command, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "keeping" not in line:
            sys.exit(f"the flight recorder did not start: {line}{self.process.stderr.read()}")

    def stories(self, slow_ns: int) -> list[Story]:
        """Of the last ten seconds: the coordinator's clients' requests that were slow."""
        dump = [self.b.tailscope, "timeline", "dump", self.control]
        told = subprocess.run(dump, capture_output=True, text=True, check=True)
        window = Path(told.stdout.strip())
        words = ["timeline", "story", window, "--json", "-n", "100000"]
        words += ["--slower", f"{slow_ns / 1e6}ms"]
        done = subprocess.run([self.b.tailscope, *words], capture_output=True, check=True)
        window.unlink()
        stories = json.loads(done.stdout)["stories"]
        return [story for story in stories if story["thread"].endswith("/coordinator")]


@contextmanager
def running(b: Bench, index: Path, hazard: str, rate: int) -> Iterator[tuple[Search, Recorder]]:
    """The servers, warm and recorded."""
    search = Search(b, index, hazard, rate)
    time.sleep(12)
    recorder = Recorder(b, search)
    try:
        yield search, recorder
    finally:
        b.end(recorder.process, signal.SIGINT)
        search.close()


def measure(b: Bench, index: Path, hazard: str, args: argparse.Namespace, result: Result) -> None:
    """One hazard, until it has struck often enough."""
    slow_ns, kinds, word = HAZARDS[hazard]
    counted: dict[tuple[int, int], Story] = {}
    slow: set[tuple[int, int]] = set()
    rate = args.rate or (RATE_OF_NAGLE if hazard == "nagle" else RATE)
    with running(b, index, hazard, rate) as (search, recorder):
        end = time.monotonic() + PATIENCE
        while len(counted) < args.wanted and time.monotonic() < end:
            before = time.monotonic()
            while time.monotonic() < before + 7:
                if hazard == "restart":
                    search.restart()
                    time.sleep(0.5)
                else:
                    time.sleep(7)
            stories = recorder.stories(slow_ns)
            struck = search.truth()
            for story in stories:
                key = (story["socket"], story["begin_ns"])
                slow.add(key)
                if struck(story):
                    counted[key] = story
            print(f"{hazard}: {len(counted)} of {len(slow)} slow requests", flush=True)
    right = [
        story
        for story in counted.values()
        if story["causes"][0]["kind"] in kinds.split() and word in story["causes"][0]["name"]
    ]
    share = 100 * len(right) / max(1, len(counted))
    latencies = sorted(story["latency_ns"] / 1e6 for story in counted.values())
    wrong = Counter(story["causes"][0]["kind"] for story in counted.values() if story not in right)
    middle = latencies[len(latencies) // 2] if latencies else 0
    example = right[0]["sentence"] if right else "none"
    text = (
        f"- {len(counted)} slow requests that it had by the worker's own word, of {len(slow)} that "
        f"took {slow_ns / 1e6:g} ms or more; their median {middle:.1f} ms\n"
        f"- one sentence: {example}"
    )
    if wrong:
        text += f"\n- others led: {dict(wrong)}"
    print(f"\n{hazard}\n{text}", flush=True)
    result.figures[hazard] = {
        "share": share,
        "text": text,
        "load": os.getloadavg()[0],
        "counted": len(counted),
        "slow": len(slow),
        "right": len(right),
        "wrong": [
            {"sentence": story["sentence"], "causes": story["causes"][:6]}
            for story in counted.values()
            if story not in right
        ],
    }


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    told = f"requests a second [default: {RATE}, for Nagle {RATE_OF_NAGLE}]"
    parser.add_argument("--rate", type=int, help=told)
    parser.add_argument("--wanted", type=int, default=WANTED, help="requests of each hazard")
    parser.add_argument("--hazard", choices=HAZARDS, action="append", help="only these")
    args = parser.parse_args()
    need_built()
    result = Result("timeline_hazards", "Whether stories name what held up a search server")
    # One hazard may be measured anew: what is known of the others stays.
    result.figures = known(result.name).get("figures", {})
    with bench() as b:
        indexes = index(b, WORKERS, DOCUMENTS)
        for hazard in args.hazard or HAZARDS:
            measure(b, indexes, hazard, args, result)
    for hazard, found in result.figures.items():
        what = f"{hazard}: stories whose first sentence names it"
        result.bars.append(at_least(what, 95, found["share"], "%"))
        result.say(hazard, found["text"] + f"\n- load average at the end: {found['load']:.1f}")
    shares = ", ".join(f"{name} {found['share']:.0f}" for name, found in result.figures.items())
    result.summary = f"stories whose first sentence names the hazard, %: {shares}"
    result.write()


if __name__ == "__main__":
    main()
