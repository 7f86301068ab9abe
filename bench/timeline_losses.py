"""What a flight recorder loses, and how long it takes to write a window.

A program makes system calls, each with its number (bench/c/calls.c): two events a call, and in a
window the numbers tell which calls are missing. What is missing has to be what the window says.

- 500,000 events a second on one CPU, rings of 64 MiB: windows of the last second have every call
- as many as that CPU can make: the memory holds less than was asked for, and the window says from
  when on it is whole; from there on every call is there, or counted as lost
- a window of ten seconds, as full as 256 MB can be: how long the writing takes, and whether the
  next window has the calls that were made meanwhile

    .venv/bin/python bench/timeline_losses.py
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import SERVER_CPU, SPARE_CPU, Bench, Result, at_least, at_most, bench, spread

#: An event as the file has it (crates/signals/include/tailscope_event.h).
EVENT = np.dtype(
    [
        *(("at", "<u8"), ("place", "<u4"), ("tid", "<u4"), ("kind", "u1"), ("flags", "u1")),
        *(("small", "<u2"), ("x", "<u4"), ("y", "<u4"), ("z", "<u4")),
    ]
)
SYSCALL_IN, SYSCALL_OUT = 11, 12
#: The numbers go round.
ROUND = 1 << 30


@dataclass(frozen=True)
class Seen:
    """What a window has of one program's calls, and says of itself."""

    about: dict[str, Any]
    first: int  # the first call's number
    first_at: int  # and when it was, in ns
    last: int
    last_at: int
    missing: int  # numbers between them, and returns, that are not there
    told: int  # events that it says are missing
    events: int
    rate: float  # events of the program a second


class Calls:
    """The program."""

    def __init__(self, b: Bench, program: Path, cpu: int, rate: int) -> None:
        command = [program, "--rate", str(rate), "--cpu", str(cpu)]
        self.process = b.start(command, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self.call = int(self.process.stdout.readline())
        self.pid = self.process.pid


def look(window: Path, calls: Calls) -> Seen:
    """Reads a window."""
    data = window.read_bytes()
    length = int.from_bytes(data[-16:-8], "little")
    about = json.loads(data[-16 - length : -16])
    parts = [np.frombuffer(data, EVENT, part["events"], part["offset"]) for part in about["parts"]]
    events = np.concatenate(parts)
    of = events[(events["tid"] == calls.pid) & (events["small"] == calls.call)]
    of = of[of["at"] >= whole_from(about)]
    begun = np.sort(of[of["kind"] == SYSCALL_IN], order="at")
    ended = of[of["kind"] == SYSCALL_OUT]
    if len(begun) < 2:
        sys.exit(f"{window} has no calls")
    numbers = begun["x"].astype(np.int64) % ROUND
    steps = np.diff(numbers) % ROUND
    # A call at either end may have one of its two events outside of the window.
    missing = int((steps - 1).sum()) + max(0, len(begun) - len(ended) - 1)
    lasted = (int(begun["at"][-1]) - int(begun["at"][0])) / 1e9
    gaps = [gap["events"] for gap in about["gaps"] if gap["to_ns"] >= whole_from(about)]
    return Seen(
        about,
        int(numbers[0]),
        int(begun["at"][0]),
        int(numbers[-1]),
        int(begun["at"][-1]),
        missing,
        sum(gaps) + sum(part["unwritten"] for part in about["parts"]),
        len(events),
        2 * len(begun) / lasted,
    )


def whole_from(about: dict[str, Any]) -> int:
    """From when on a window says that all is there, in ns."""
    return max(about["from_ns"], *(part["from_ns"] for part in about["parts"]))


class Recorder:
    """A flight recorder, whose windows are asked for."""

    def __init__(self, b: Bench, pids: list[int], keep: str, memory: int) -> None:
        self.b, self.control = b, b.folder / "control"
        watched = [word for pid in pids for word in ("-p", str(pid))]
        options = ["--keep", keep, "--memory", str(memory), "--control", self.control]
        command = [b.tailscope, "timeline", *watched, *options, "-o", b.folder / "windows"]
        self.process = b.start(command, stderr=subprocess.PIPE)
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if "keeping" not in line:
            sys.exit(f"the flight recorder did not start: {line}{self.process.stderr.read()}")

    def window(self) -> tuple[Path, float]:
        """One, and how long it took to have it, in s."""
        dump = [self.b.tailscope, "timeline", "dump", self.control]
        begin = time.monotonic()
        told = subprocess.run(dump, capture_output=True, text=True, check=True)
        return Path(told.stdout.strip()), time.monotonic() - begin


@contextmanager
def recording(
    b: Bench, pids: list[int], keep: str, memory: int, said: list[str]
) -> Iterator[Recorder]:
    """While it goes on; what it says is in `said` afterwards."""
    recorder = Recorder(b, pids, keep, memory)
    try:
        yield recorder
    finally:
        recorder.process.send_signal(signal.SIGINT)
        said += recorder.process.stderr.read().splitlines()
        b.end(recorder.process)


def losses(b: Bench, program: Path, rate: int, keep: str, windows: int) -> tuple[list[Seen], str]:
    """Windows with calls at this rate, and what the recorder says at its end."""
    calls = Calls(b, program, SERVER_CPU, rate)
    seen, said = [], []
    with recording(b, [calls.pid], keep, 64 << 20, said) as recorder:
        time.sleep(2.5)
        for _ in range(windows):
            window, _ = recorder.window()
            seen.append(look(window, calls))
            window.unlink()
            time.sleep(0.5)
    b.end(calls.process)
    return seen, next(line for line in said if " events, " in line)


def full(b: Bench, program: Path, windows: int) -> tuple[list[float], list[Seen], list[int]]:
    """Windows of ten seconds: how long each took, what it has, and calls between two of them."""
    cpus = (SERVER_CPU, SPARE_CPU)
    both = [Calls(b, program, cpu, 95_000) for cpu in cpus]
    took, seen, between = [], [], []
    with recording(b, [calls.pid for calls in both], "10s", 256 << 20, []) as recorder:
        time.sleep(10.5)
        for _ in range(windows):
            window, lasted = recorder.window()
            took.append(lasted)
            seen.append(look(window, both[0]))
            window.unlink()
            if len(seen) > 1:
                behind = (seen[-1].first - seen[-2].last) % ROUND
                between.append(behind - 1 if behind < ROUND // 2 else 0)
            time.sleep(2)
    for calls in both:
        b.end(calls.process)
    return took, seen, between


def told(seen: list[Seen]) -> str:
    """Figures of windows, in words."""
    rates = spread([s.rate for s in seen])
    held = spread([(s.about["to_ns"] - whole_from(s.about)) / 1e9 for s in seen])
    return (
        f"- {len(seen)} windows, {sum(s.events for s in seen):,} events; of the program alone "
        f"{rates.text(0)} a second\n"
        f"- whole for {held.text(2)} s; calls missing there {sum(s.missing for s in seen)}, "
        f"events told as lost {sum(s.told for s in seen)}"
    )


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=10)
    args = parser.parse_args()
    result = Result("timeline_losses", "What a flight recorder loses, and writing a window")
    with bench() as b:
        program = b.compile("calls.c")
        steady, says = losses(b, program, 250_000, "1s", args.windows)
        short = [s for s in steady if whole_from(s.about) > s.about["from_ns"]]
        slowest = min(s.rate for s in steady)
        result.bars += [
            at_least("events a second, the slowest window", 450_000, slowest, "", 0),
            at_most("of those missing in 64 MiB", 0, sum(s.missing for s in steady), "", 0),
            at_most("windows of a second that the memory had no room for", 0, len(short), "", 0),
        ]
        result.say("500,000 events a second", f"{told(steady)}\n- at its end: {says}")
        fast, says = losses(b, program, 0, "10s", args.windows)
        wrong = sum(abs(s.missing - s.told) for s in fast)
        whole = sum(whole_from(s.about) > s.about["from_ns"] for s in fast)
        result.bars += [
            at_least("windows that say they are short", args.windows, whole, "", 0),
            at_most("calls missing that it does not tell of", 0, wrong, "", 0),
        ]
        result.say("As many as the CPU can make", f"{told(fast)}\n- at its end: {says}")
        took, seen, between = full(b, program, 5)
        result.bars += [
            at_most("writing ten seconds", 1.0, spread(took), "s", 2),
            at_most("calls made meanwhile that no window has", 0, sum(between), "", 0),
        ]
        result.say(
            "A window of ten seconds",
            f"{told(seen)}\n- asked for and there after, in s: "
            + ", ".join(f"{t:.2f}" for t in took),
        )
    result.summary = (
        f"{slowest:,.0f} events/s, {sum(s.missing for s in steady)} missing; a window of ten "
        f"seconds is written in {spread(took).median:.2f} s"
    )
    result.figures = {
        "steady": [(s.rate, s.missing, s.told) for s in steady],
        "fast": [(s.rate, s.missing, s.told) for s in fast],
        "took_s": took,
        "between": between,
    }
    result.write()


if __name__ == "__main__":
    main()
