"""The experiments of Shim (Yang, Blackburn, McKinley, ISCA 2015) on this machine.

Each is the same question asked of `tailscope observe`, on programs whose truth is known. The
paper's own numbers stand beside ours as far as this project's design quotes them. What observing
takes from a program, the observer measures with random pauses
(docs/explanation/error-correction.md). About three minutes, on a machine that is quiet.

    .venv/bin/python bench/observe_figures.py
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

from harness import ROOT, SERVER_CPU, Bench, Result, bench, table
from observe_cost import METHODS, STEP, effect, instrumented, observed, paced, percent, running

#: Cycles that a piece of work takes in each stage of bench/c/stages.c, and its bytes.
STAGES = {"parse": (500, 64), "look_up": (1000, 16), "answer": (2000, 1024)}

#: Of each figure: its heading, and what the paper asks and what is done here.
WORDS = {
    "1": (
        "Fig. 1: the rate of sampling, and what is seen",
        """\
Paper: samples that are far apart show a mean where there are different rates, and miss methods
that samples close together find. Here a program whose true rate goes from 1 to 1/2 to 1/3 every
50 µs, and one whose places are known by edges (`text` of bench/c/methods.c).""",
    ),
    "4": (
        "Fig. 4: the share of good samples, and impossible rates",
        f"""\
Paper: some samples have rates that cannot be; where both readings of the clock have to agree within
1 %, they are gone. Here a counter that can't grow faster than once in {STEP:,} cycles. Any pair may
see one count more than that, at its ends: so at short periods the largest rate is above the truth
and yet possible. Readings of a clock that goes on by several cycles at a time may lie one step of
it apart, and where the line was fetched within a reading, that is made again
(docs/explanation/error-correction.md).""",
    ),
    "7a": (
        "Fig. 7a: a software signal, read on another core at rising periods",
        """\
Paper: 2 % at a mean period of 1,213 cycles. Here programs that write the number of their method or
loop at every edge of their code; their rounds are counted in another line, which is read too. Taken
from the program (95 %):""",
    ),
    "8": (
        "Fig. 8: producer and consumer, what writing costs the reader",
        """\
Paper: 30 cycles a sample of a line that another core keeps writing, without readings of the clock;
that very figure is in the first table of `bench/render observe_cost`. Here the whole sample, as
fast as it goes: both readings of the clock, the analysis, cycles, by how often the line was
written.""",
    ),
    "9": (
        "Fig. 9: producer and consumer, what reading costs the writer",
        """\
Paper: a tight loop of stores is the worst case. Here that loop, and a program that waits for each
of its stores to be seen. Taken from the producer (95 %), by the reader's period:""",
    ),
    "12": (
        "Fig. 12: a rate by method",
        """\
Paper: identifiers of methods, read beside a rate, tell which method has it. Here three functions
of known speeds (bench/c/stages.c), a third of the time each, sampled every 20,000 cycles.""",
    ),
}

HEAD = """\
Shim's experiments, each with what `tailscope observe` shows on this machine. "Paper" is what the
design of this project quotes of it; no other number of the paper is given. Cycles are those of the
machine's clock. What a sample takes, and what the identifiers themselves cost, is in
`bench/render observe_cost` and `bench/render observe_java_cost`.

Each cell is one run of two seconds, and its interval that of the pauses within: a cell that falls
out of its row, or lies below zero, shows how the virtual machine's own speed changes meanwhile.

**Not run here**, on a virtual machine without hardware threads and hardware counters: the observer
on the same core as the program (SMT), instructions and cycles of a real processor, the core's clock
as it rises and falls, and what prefetchers do to a line that two CPUs share.
`bench/observe_hardware.py` does it on a machine that has them. Instructions and IPC are held
against known truth in an emulated arm64 machine (`tests/guests/test_counters.py`)."""


def ask(bench: Bench, pid: int, seconds: int, *options: object) -> dict[str, Any]:
    """What is seen of a program's rounds."""
    rounds = ("--signal", f"channel:{pid}:rounds")
    return observed(bench, *rounds, "--duration", f"{seconds}s", *options)


def say(result: Result, figure: str, rows: str) -> None:
    """A figure's part of the page."""
    heading, words = WORDS[figure]
    result.say(heading, f"{words}\n\n{rows}")


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def figure_1(bench: Bench, result: Result, seconds: int) -> None:
    """How much of a rate, and of the places of a program, each rate of sampling sees."""
    periods = (3_000_000, 300_000, 30_000, 3_000)
    rows = []
    program = instrumented(bench, "edge")
    for period in periods:
        with paced(bench, "--cycles", STEP, "--phases", 3, "--phase-us", 50) as pid:
            phases = ask(bench, pid, seconds, "--period", period, "--dte", "5%")
        with running(bench, [program, "text", 600, SERVER_CPU]) as pid:
            tag = ("--tag", f"channel:{pid}:edge")
            places = ask(bench, pid, seconds, "--period", period, *tag)
        kept = phases["rates"][0]["kept"]
        step = phases["clock_hz"] / STEP
        seen = [kept[p] / step for p in ("p1", "p50", "p99")]
        tags = places["by_tag"]
        found = {
            "samples a second": phases["samples"] / phases["seconds"],
            "rate at p1, p50, p99": seen,
            "places": tags["distinct"],
            "functions": [(f["name"], f["share"]) for f in tags["functions"]],
        }
        result.figures.setdefault("figure 1", {})[period] = found
        hot = " ".join(f"{name} {100 * share:.0f} %" for name, share in found["functions"][:3])
        rows.append(
            (
                f"{period:,}",
                f"{found['samples a second']:,.0f}",
                ", ".join(f"{value:.2f}" for value in seen),
                f"{tags['distinct']}",
                hot,
            )
        )
    head = ("period", "samples a second", "a rate of 1, 1/2 and 1/3: p1, p50, p99")
    say(result, "1", table((*head, "places seen in the other", "its functions"), rows))


def figure_4(bench: Bench, result: Result, seconds: int) -> None:
    """What double-time error correction keeps, and what it removes."""
    rows = []
    with paced(bench, "--cycles", STEP) as pid:
        for period in ("fast", "600", "1200", "2500", "5000", "10000", "50000"):
            seen = ask(bench, pid, seconds, "--period", period, "--at-most", f"1/{STEP}")
            impossible, rate = seen["impossible"], seen["rates"][0]
            most = [rate[which]["max"] * STEP / seen["clock_hz"] for which in ("all", "kept")]
            result.figures.setdefault("figure 4", {})[period] = {
                "kept": seen["kept_share"],
                "impossible": impossible,
                "largest": most,
            }
            rows.append(
                (
                    period,
                    percent(seen["kept_share"]),
                    f"{impossible['all']:,}",
                    f"{impossible['kept']:,}",
                    f"{most[0]:,.1f}",
                    f"{most[1]:.2f}",
                )
            )
    head = ("period", "good samples", "impossible before", "after")
    say(result, "4", table((*head, "largest rate before, in times the truth", "after"), rows))


def figure_7a(bench: Bench, result: Result, seconds: int) -> None:
    """What reading a software signal from another core takes from a program."""
    periods = (600, 1200, 2500, 5000, 10_000, 50_000)
    program = instrumented(bench, "edge")
    rows, shares = [], {period: [] for period in periods}
    for name in METHODS:
        with running(bench, [program, name, 600, SERVER_CPU]) as pid:
            row = [name]
            for period in periods:
                tag = ("--tag", f"channel:{pid}:edge")
                seen = ask(bench, pid, seconds, "--period", period, *tag)
                shares[period].append(100 * seen["effect"]["share"])
                row.append(effect(seen))
            rows.append(row)
    rows.append(["mean", *(f"{mean(of):.2f} %" for of in shares.values())])
    result.figures["figure 7a"] = dict(
        zip(METHODS, zip(*shares.values(), strict=True), strict=True)
    )
    say(result, "7a", table(("program", *(f"{period:,} cycles" for period in periods)), rows))


def figure_8(bench: Bench, result: Result, seconds: int) -> None:
    """From the producer to the consumer: what the writing costs the reader."""
    rows = []
    for words, options in (
        ("as fast as it can", ("--burst",)),
        ("every 100 cycles", ("--cycles", 100)),
        ("every 1,000", ("--cycles", 1000)),
        ("every 10,000", ("--cycles", 10_000)),
        ("every 100,000", ("--cycles", 100_000)),
    ):
        with paced(bench, *options) as pid:
            seen = ask(bench, pid, seconds, "--period", "fast")
        period, read = seen["periods"], seen["reads"]
        result.figures.setdefault("figure 8", {})[words] = {"period": period, "read": read}
        cells = (period["mean"], period["p50"], period["p99"], read["p50"], read["p99"])
        rows.append((words, *(f"{cell:,.0f}" for cell in cells)))
    head = ("the producer writes", "a sample takes: mean", "p50", "p99", "its reading: p50", "p99")
    say(result, "8", table(head, rows))


def figure_9(bench: Bench, result: Result, seconds: int) -> None:
    """From the consumer to the producer: what the reading costs the writer."""
    rows = []
    programs = {"a tight loop of stores": ("--burst",), "a store every 1,000": ("--cycles", STEP)}
    periods = ("fast", "600", "1200", "2500", "5000", "10000", "50000")
    for words, options in programs.items():
        with paced(bench, *options) as pid:
            row = [words]
            for period in periods:
                seen = ask(bench, pid, seconds, "--period", period)
                result.figures.setdefault("figure 9", {}).setdefault(words, {})[period] = seen[
                    "effect"
                ]
                row.append(effect(seen))
            rows.append(row)
    say(result, "9", table(("the producer", *periods), rows))


def figure_12(bench: Bench, result: Result, seconds: int) -> None:
    """A rate by the method that was running."""
    program = instrumented(bench, "edge", "stages")
    with running(bench, [program, SERVER_CPU]) as pid:
        seen = observed(
            bench,
            *("--signal", f"channel:{pid}:pieces", "--signal", f"channel:{pid}:octets"),
            *("--tag", f"channel:{pid}:edge", "--period", 20_000, "--duration", f"{seconds}s"),
        )
    functions = {f["name"]: f for f in seen["by_tag"]["functions"]}
    rows = []
    for name, (cycles, octets) in STAGES.items():
        found, hz = functions[name], seen["clock_hz"]
        told = found["per_second"] or [float("nan")] * 2
        rows.append(
            (
                name,
                percent(found["share"]),
                f"{found['samples']:,}",
                f"1 in {cycles:,}",
                f"1 in {hz / told[0]:,.0f}",
                f"{octets / cycles:.3f}",
                f"{told[1] / hz:.3f}",
            )
        )
    result.figures["figure 12"] = {"functions": functions, "joint": seen["joint"]}
    head = ("method", "of the time", "pairs", "pieces, true", "pieces, seen", "bytes a cycle, true")
    say(result, "12", table((*head, "seen"), rows))


FIGURES: dict[str, Callable[[Bench, Result, int], None]] = {
    "1": figure_1,
    "4": figure_4,
    "7a": figure_7a,
    "8": figure_8,
    "9": figure_9,
    "12": figure_12,
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=FIGURES, help="these; writes nothing")
    parser.add_argument("--quick", action="store_true", help="short runs; writes nothing")
    args = parser.parse_args()
    result = Result("observe_figures", "Shim's figures, here")
    result.say("How to read them", HEAD)
    with bench() as it:
        it.paced = it.copy(ROOT / "target" / "lab" / "paced")
        for name, figure in FIGURES.items():
            if not args.only or name in args.only:
                figure(it, result, 1 if args.quick else 2)
    if not args.only and not args.quick:
        good = result.figures["figure 4"]["2500"]["kept"]
        taken = mean([each[1] for each in result.figures["figure 7a"].values()])
        result.summary = (
            f"good samples at 2,500 cycles {percent(good)}; taken by reading marks at 1,200 "
            f"cycles, mean of five programs, {taken:.2f} %"
        )
        result.write()


if __name__ == "__main__":
    main()
