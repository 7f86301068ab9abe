"""Whether `tailscope locality predict` predicts what moving a phase to its data gains.

The program is `tailscope chase` in `sync`, with paths that the predictor does not know. It is
sampled while it runs, and its second phase is the phase. Then chase itself measures what `yield`
and `delegate` gain on that path: that is the truth. Sampling, truth and prediction follow each
other for each path, so that a slow change of the machine touches all three alike.

A host may move the CPUs of a virtual machine every few seconds. A cache line then takes 14, 33 or
160 ns from one CPU to the other, and delegation gains 7 % or eleven times on one path. So the truth
is measured again until the CPUs are as far apart as they were while the program was sampled. The
program is sampled again if they moved while it was.

    .venv/bin/python bench/locality_predict.py
    .venv/bin/python bench/locality_predict.py --every 2      every second path
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import time
from dataclasses import asdict, dataclass
from typing import Any

from harness import Bar, Bench, Result, at_least, at_most, bench, table

#: The function of chase that calls the walk of its second phase.
PHASE = "tailscope_locality::chase::session::odd_phase"
#: Its exit codes where the samples say too little, and where no path fits or others had the CPUs.
CANT_TELL = (1, 3)
#: An effect that is large enough for its sign to matter.
CLEAR = 0.1
#: A path takes so long to be warm, before it is sampled.
WARM_S = 3.0
#: CPUs are as far apart if the times of a cache line differ by less.
AS_FAR = 1.5
#: The part of all times that are alike if the CPUs stayed as far apart.
STEADY = 0.9
#: How often to sample, and to measure the truth, until the CPUs are as far apart.
TRIES = 15

SIZES = ("0.5L1d", "1.5L1d", "0.25L2", "0.75L2", "1.2L2")
UPDATES = ("0", "1%", "10%", "100%")
#: Options of chase: lines of both scopes, and lines that both phases use.
MIXED = (
    "--phase 4/2000 --phase 0/2000,0.2",
    "--phase 20,0.5/500 --phase 20/500",
    "--phase 0/8000,0.05 --phase 0/1000",
    "--phase 0/300 --phase 0/300 --shared 0/1000:0,0,0/1,0,0",
    "--phase 0/2000 --phase 0/2000 --shared 0/500:0,0,0.3/1,0,0.3",
    "--phase 2/4000 --phase 2/4000 --shared 4/100:0,0.5,1/1,0.5,1",
    "--phase 0/1000,1 --phase 0/6000",
    "--phase 0/10000 --phase 0/10000 --shared 0/5000:0,0,0.01/1,0,0.01",
)


def paths() -> list[list[str]]:
    """The options of chase for each path: forty."""
    zipf = [["-w", size, "-u", updates] for size in SIZES for updates in UPDATES]
    others = [
        ["-w", size, "-u", updates, "--distribution", spread]
        for spread in ("even:1", "even:4", "zipf:0.5")
        for size in ("0.25L2", "0.75L2")
        for updates in ("0", "50%")
    ]
    return zipf + others + [mixed.split() for mixed in MIXED]


@dataclass(frozen=True)
class Predicted:
    """What was predicted of a mode, and what came true: speed against sync."""

    path: str
    mode: str
    truth: float
    value: float
    low: float
    high: float
    visits_ns: float
    line_ns: float

    @property
    def error(self) -> float:
        """In points of per cent."""
        return abs(self.value - self.truth) * 100

    @property
    def covers(self) -> bool:
        """Whether the truth lies in the interval."""
        return self.low <= self.truth <= self.high

    @property
    def is_clear(self) -> bool:
        """Whether the true effect is large enough for its sign to matter."""
        return abs(self.truth - 1) > CLEAR

    @property
    def has_sign(self) -> bool:
        """Whether it predicts the right sign."""
        return (self.value > 1) == (self.truth > 1)


def line_times(found: dict[str, Any]) -> list[float]:
    """ns of a cache line from one CPU to the other, while the program was sampled."""
    times: list[float] = (found.get("distance") or {}).get("line_ns", [])
    return times


class Moved(Exception):
    """The host moved the CPUs all of the time."""


class Predictor:
    """One path after the other."""

    def __init__(self, bench: Bench, seconds: float, rate: int) -> None:
        self.bench = bench
        self.seconds = seconds
        self.rate = rate

    def json(self, *arguments: object) -> dict[str, Any]:
        """What a command prints; nothing if it can't tell."""
        command = [str(self.bench.tailscope), *map(str, arguments), "-q", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode in CANT_TELL:
            return {}
        done.check_returncode()
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def sampled(self, path: list[str]) -> dict[str, Any]:
        """What `locality` finds of a program that walks this path in `sync`."""
        # Long segments: between two of them, chase measures its CPUs.
        command = ["chase", *path, "--modes", "sync", "--segment", "2s", "-d", "600s"]
        command += ["--no-latencies", "-q", "--tolerance", "100%"]
        program = self.bench.start([self.bench.tailscope, *command], stdout=subprocess.DEVNULL)
        time.sleep(WARM_S)
        options = ["-d", f"{self.seconds}s", "--rate", self.rate]
        found = self.json("locality", "-p", program.pid, "--phase", PHASE, *options)
        self.bench.end(program, signal.SIGKILL)
        return found

    def sampled_at_rest(self, path: list[str]) -> dict[str, Any]:
        """The same, of a time in which the host did not move the CPUs."""
        for _ in range(TRIES):
            found = self.sampled(path)
            lines = line_times(found)
            if not lines:
                return found
            middle = statistics.median(lines)
            if sum(1 / AS_FAR < ns / middle < AS_FAR for ns in lines) >= STEADY * len(lines):
                return found
        raise Moved

    def truth(self, path: list[str], line_ns: float) -> dict[str, Any]:
        """What chase measures where a cache line takes about this time."""
        options = ["--modes", "sync,yield,delegate", "-d", "3s", "--no-latencies"]
        for _ in range(TRIES):
            (point,) = self.json("chase", *path, *options)["points"]
            apart = point["line_ns"][0] / line_ns
            if 1 / AS_FAR < apart < AS_FAR:
                return {speed["mode"]: speed["ratio"] for speed in point["speeds"]}
        raise Moved

    def path(self, path: list[str]) -> list[Predicted]:
        """Samples, measures, predicts."""
        found = self.sampled_at_rest(path)
        if not line_times(found):
            return []
        line_ns = statistics.median(line_times(found))
        truth = self.truth(path, line_ns)
        file = self.bench.folder / "found.json"
        file.write_text(json.dumps(found))
        prediction = self.json("locality", "predict", file)
        return [
            Predicted(
                path=" ".join(path),
                mode=gain["mode"],
                truth=truth[gain["mode"]]["value"],
                visits_ns=found["visits"]["apart_ns"],
                line_ns=line_ns,
                **gain["ratio"],
            )
            for gain in prediction.get("gains", [])
        ]


def row(one: Predicted) -> list[str]:
    """A line of the table."""
    percent = [f"{(ratio - 1) * 100:+.0f}" for ratio in (one.truth, one.value, one.low, one.high)]
    interval = f"{percent[2]} to {percent[3]}"
    round_us = f"{one.visits_ns / 1e3:.0f}"
    line_ns, holds = f"{one.line_ns:.0f}", "yes" if one.covers else "NO"
    return [one.path, round_us, line_ns, one.mode, *percent[:2], interval, holds]


def bars(found: list[Predicted]) -> list[Bar]:
    """The issue's three."""
    clear = [one for one in found if one.is_clear]
    signs = sum(one.has_sign for one in clear) / max(1, len(clear))
    covered = sum(one.covers for one in found) / len(found)
    error = statistics.median(one.error for one in found)
    many = f"of {len(found)} predictions"
    return [
        at_most(f"median error {many}", 10, error, "points"),
        at_least(f"right sign of {len(clear)} effects above 10 %", 95, signs * 100, "%"),
        at_least(f"truth in the interval, {many}", 85, covered * 100, "%"),
    ]


def summary(found: list[Predicted]) -> str:
    """The line in bench/README.md."""
    clear = [one for one in found if one.is_clear]
    signs, covered = sum(one.has_sign for one in clear), sum(one.covers for one in found)
    return (
        f"what a move gains, against chase: median error "
        f"{statistics.median(one.error for one in found):.0f} points; sign right in {signs} of "
        f"{len(clear)}; in the interval {covered} of {len(found)}"
    )


def main() -> None:
    """Predicts all paths, and stores the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10, help="to sample each path (10)")
    parser.add_argument("--rate", type=int, default=2000, help="samples a second (2000)")
    parser.add_argument("--every", type=int, default=1, help="take every Nth path only (1)")
    parser.add_argument("--no-result", action="store_true", help="store nothing")
    args = parser.parse_args()
    result = Result("locality_predict", "What `tailscope locality predict` predicts")
    head = ("path", "round, us", "line, ns", "mode", "true, %", "predicted, %", "interval", "holds")
    found: list[Predicted] = []
    silent = moved = 0
    with bench() as it:
        predictor = Predictor(it, args.seconds, args.rate)
        for path in paths()[:: args.every]:
            try:
                predicted = predictor.path(path)
            except Moved:
                moved += 1
                continue
            silent += not predicted
            for one in predicted:
                found.append(one)
                print("  ".join(row(one)), flush=True)
    result.bars = bars(found)
    result.say("Predictions", table(head, [row(one) for one in found]))
    result.summary = summary(found)
    without = [f"{silent} paths: too short to be counted, or no path fits"]
    without += [f"{moved} paths were not judged: the host moved the CPUs all of the time"]
    result.say("Can't tell", "\n".join(f"- {line}" for line in without))
    result.figures |= {"silent": silent, "moved": moved}
    result.figures["predictions"] = [asdict(one) for one in found]
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
