"""What a sample takes, what observing takes from a program, and what its figures are worth.

The program is the lab's `paced`, on a CPU of its own beside the observer's. Either it grows four
counters by one step every 1,000 cycles of the clock, so that every rate above that cannot be; or
it does nothing but add to one channel as fast as it can (`--burst`): the tight store loop that Shim
found to be the worst case (Fig. 9). What observing takes is measured by the observer itself, with
random pauses (docs/explanation/error-correction.md). Or it is one of five small programs whose
methods and loops write where they are (bench/c/methods.c), compiled by clang with calls at the
entry of each method, or at every edge, so at every turn of a loop; what observing takes from these
is told by how far the two CPUs are apart (apart.py).

What these machines can't show: SMT siblings and hardware counters of x86-64 are not measured here.

    .venv/bin/python bench/observe_cost.py
    .venv/bin/python bench/observe_cost.py --only periods      also: samples, methods, budget, raw
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apart
from apart import FAR, NEAR, Apart, cell
from harness import (
    ROOT,
    SERVER_CPU,
    Bar,
    Bench,
    Result,
    at_least,
    at_most,
    bench,
    spread,
    table,
)

STEP = 1000
PERIODS = ("fast", "600", "1200", "2500", "5000", "10000", "50000")
PARTS = ("samples", "periods", "methods", "budget", "raw")
METHODS = ("sort", "hash", "tree", "matrix", "text")
#: Where the compiler puts calls; none of them: as it is.
LEVELS = {"methods": "func", "methods and loops": "edge"}
METHODS_HEAD = (
    *("program", "calls at", "they cost"),
    *(
        f"an observer at {period}, {where}"
        for period in ("1,200 cycles", "600")
        for where in (NEAR, FAR)
    ),
)
RANGES = ("mean periods at 1,200", "a line's way, cycles")


@contextmanager
def running(bench: Bench, command: list[object]) -> Iterator[int]:
    """A program with channels, and its process id once it counts."""
    process = bench.start([str(word) for word in command], stdout=subprocess.DEVNULL)
    maps = Path(f"/proc/{process.pid}/maps")
    while "tailscope-channels" not in maps.read_text():
        time.sleep(0.02)
    yield process.pid
    bench.end(process)


def paced(bench: Bench, *options: object) -> AbstractContextManager[int]:
    """The lab's."""
    return running(bench, [bench.paced, "--cpu", SERVER_CPU, "--seconds", 600, *options])


def observed(bench: Bench, *options: object) -> dict[str, Any]:
    """A report."""
    command = [bench.tailscope, "observe", "--quiet", "--json", *options]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def effect(report: dict[str, Any]) -> str:
    """A share with its interval."""
    found = report["effect"]
    return f"{percent(found['share'])} ({percent(found['low'])} to {percent(found['high'])})"


def samples(bench: Bench, result: Result, rounds: int) -> None:
    """Cycles a sample takes, as fast as it goes."""
    found = [observed(bench, "--self-test") for _ in range(rounds)]
    rows = []
    for case, words in (("quiet", "nobody writes it"), ("contended", "another CPU writes it")):
        parts = ("load", "floor", "clocked", "analysed")
        costs = [spread([f[case][part] for f in found]) for part in parts]
        rows.append((words, *(cost.text() for cost in costs)))
    head = ("a counter", "counter alone", "two clock readings and it", "a sample", "with analysis")
    result.say("cycles a sample takes, as fast as it goes", table(head, rows))
    contended = [f["contended"] for f in found]
    load, floor, clocked = (
        spread([c[part] for c in contended]) for part in ("load", "floor", "clocked")
    )
    what = "a sample of a contended counter, "
    least = f"both readings and a load between, in the loop's order: {floor.text()}"
    result.bars += [
        at_most(what + "without clock readings", 30, load, "cycles"),
        replace(at_most(what + "with them", 150, clocked, "cycles"), note=least),
    ]
    result.figures["samples"] = found
    result.summary = (
        f"a sample of a contended counter takes {clocked.median:.1f} cycles, "
        f"without clock readings {load.median:.1f}"
    )


def periods(bench: Bench, result: Result, seconds: int) -> None:
    """What each period takes from the program, and what the correction keeps of it."""
    for name, options in (("steps", ("--cycles", STEP)), ("stores", ("--burst",))):
        rows, reports = [], {}
        with paced(bench, *options) as pid:
            for period in PERIODS:
                report = observed(
                    bench,
                    *("--signal", f"channel:{pid}:rounds", "--period", period),
                    *("--duration", f"{seconds}s", "--at-most", f"1/{STEP}"),
                )
                reports[period] = {k: v for k, v in report.items() if k not in ("series", "rates")}
                rate = report["rates"][0]
                impossible = report["impossible"]
                told = (
                    (f"{impossible['all']:,}", f"{impossible['kept']:,}") if name == "steps" else ()
                )
                rows.append(
                    (
                        period,
                        f"{report['periods']['mean']:.0f}",
                        effect(report),
                        percent(report["kept_share"]),
                        f"{100 * rate['per_second'] / rate['all_per_second']:.1f} %",
                        *(told if name == "steps" else ()),
                    )
                )
        head = ("period", "mean period", "taken from the program (95 %)", "pairs kept", "rate told")
        more = ("impossible, all", "impossible, kept") if name == "steps" else ()
        words = {
            "steps": f"a program that steps every {STEP} cycles, and waits for each of its stores",
            "stores": "a tight loop of stores",
        }
        result.say(words[name], table((*head, *more), rows))
        result.figures[name] = reports
        if name == "steps":
            least = min(reports[p]["kept_share"] for p in PERIODS if p.isdigit() and int(p) >= 2500)
            result.bars.append(
                at_least("pairs kept at periods from 2,500 cycles on", 90, least * 100, "%")
            )
            kept = sum(report["impossible"]["kept"] for report in reports.values())
            all_pairs = sum(report["impossible"]["all"] for report in reports.values())
            figure = f"{kept} of {all_pairs:,}"
            result.bars.append(Bar("impossible rates kept", "0", figure, kept == 0))


def instrumented(bench: Bench, level: str | None, name: str = "methods") -> Path:
    """A program of bench/c with calls at every edge, or at every method, or without."""
    target = bench.folder / f"{name}-{level or 'plain'}"
    sdk, code = ROOT / "sdk" / "c", ROOT / "bench" / "c" / f"{name}.c"
    where = [f"-I{sdk}", f"-I{ROOT / 'lab' / 'c'}"]
    common = ["clang", "-std=c11", "-D_GNU_SOURCE", "-O2", "-g", *where]
    edges = [f"-fsanitize-coverage={level},trace-pc-guard"] if level else []
    part = bench.folder / f"{name}.o"
    subprocess.run([*common, *edges, "-c", code, "-o", part], check=True)
    runtime = [sdk / "tailscope_edges.c"] if level else []
    subprocess.run([*common, part, *runtime, "-pthread", "-o", target], check=True)
    return target


def alone(program: Path, name: str, seconds: float) -> float:
    """Rounds a second of one of the five, with nobody beside."""
    done = subprocess.run(
        [program, name, str(seconds), str(SERVER_CPU)], capture_output=True, text=True, check=True
    )
    said = json.loads(done.stdout)
    return said["rounds"] / said["seconds"]


def methods(bench: Bench, result: Result, rounds: int) -> None:
    """What identifiers of methods and loops cost programs, and what reading them costs."""
    programs = {level: instrumented(bench, flag) for level, flag in LEVELS.items()}
    plain, line = instrumented(bench, None), Apart(bench)
    rows, taken = [], {}
    for level, program in programs.items():
        for name in METHODS:
            # By turns, and pair by pair.
            slower = spread(
                [100 * (1 - alone(program, name, 0.3) / alone(plain, name, 0.3)) for _ in range(3)]
            )
            found = {
                period: [
                    line.taken(lambda: placed(bench, program, name, period))  # noqa: B023
                    for _ in range(rounds)
                ]
                for period in (1200, 600)
            }
            taken[name, level] = found
            result.figures.setdefault("methods", {})[f"{name}, {level}"] = {
                period: apart.figures(each) for period, each in found.items()
            } | {"identifiers": slower.median}
            cells = [cell(each, where) for each in found.values() for where in (NEAR, FAR)]
            ranges = apart.periods(found[1200]), apart.ways(found.values())
            rows.append((name, level, f"{slower.text()} %", *cells, *ranges))
    heading = f"programs that say in which method and loop they are; {apart.WORDS}"
    result.say(heading, table((*METHODS_HEAD, *RANGES), rows))
    for level in LEVELS:
        what = f"taken by reading ids of {level} at 1,200 cycles, the mean of five"
        result.bars += apart.bars(what, 2, [taken[name, level][1200] for name in METHODS])


def placed(bench: Bench, program: Path, name: str, period: int) -> dict[str, Any]:
    """An observation of one of the five, for a second."""
    with running(bench, [program, name, 600, SERVER_CPU]) as pid:
        return observed(
            bench,
            *("--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:edge"),
            *("--period", period, "--duration", "1s"),
        )


def budget(bench: Bench, result: Result, seconds: int) -> None:
    """The period that a budget of 1 % finds, and what it then takes."""
    rows, worst = [], 0.0
    programs = {
        "stores": ("--burst",),
        "a step every 200 cycles": ("--cycles", 200),
        "a step every 1,000 cycles": ("--cycles", 1000),
        "a step every 10,000 cycles": ("--cycles", 10000),
    }
    for name, options in programs.items():
        with paced(bench, *options) as pid:
            report = observed(
                bench,
                *("--signal", f"channel:{pid}:rounds", "--budget", "1%"),
                *("--duration", f"{seconds}s"),
            )
        share = report["effect"]["share"]
        # A program from which even the fastest, slower than asked for, can't take 1 % is within it.
        fastest = report["period"] < 0.9 * report["periods"]["p1"]
        off = max(0.0, share - 0.01) if fastest else abs(share - 0.01)
        worst = max(worst, off)
        rows.append((name, f"{report['period']:,}", effect(report)))
        result.figures.setdefault("budget", {})[name] = report["effect"] | {
            "period": report["period"]
        }
    result.say(
        "a budget of 1 %", table(("program", "period found", "taken in the second half"), rows)
    )
    result.bars.append(
        at_most("a budget of 1 %: off by, the worst of four programs", 0.5, worst * 100, "%", 2)
    )


def raw(bench: Bench, result: Result, seconds: int) -> None:
    """Every sample to disk."""
    with paced(bench, "--cycles", STEP) as pid:
        report = observed(
            bench,
            *("--signal", f"channel:{pid}:rounds", "--tag", f"channel:{pid}:phase"),
            *("--period", 1900, "--no-pauses", "--duration", f"{seconds}s"),
            *("--output", bench.folder / "raw"),
        )
    written = report["raw"]
    each = written["samples"] / report["seconds"]
    rows = [
        (
            f"{report['seconds']:.0f}",
            f"{each:,.0f}",
            f"{written['lost']:,}",
            f"{written['bytes'] / written['samples']:.2f}",
        )
    ]
    head = ("seconds", "samples a second", "lost", "bytes a sample")
    result.say("raw samples of a counter and a tag", table(head, rows))
    result.figures["raw"] = written | {"seconds": report["seconds"]}
    figure = (
        f"{each / 1e6:.2f} million a second for {report['seconds']:.0f} s, {written['lost']} lost"
    )
    held = each >= 1e6 and written["lost"] == 0 and report["seconds"] >= 60
    bar = "1 million a second for a minute, none lost"
    result.bars.append(Bar("raw samples to disk", bar, figure, held))


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="leave out the others")
    parser.add_argument("--quick", action="store_true", help="short runs")
    parser.add_argument("--no-result", action="store_true", help="leave bench/results alone")
    args = parser.parse_args()
    parts = args.only or PARTS
    name = "observe_cost" if parts == PARTS else f"observe_cost_{'_'.join(parts)}"
    result = Result(name, "What observing takes, and what its figures are worth")
    with bench() as it:
        it.paced = it.copy(ROOT / "target" / "lab" / "paced")
        if "samples" in parts:
            samples(it, result, 3 if args.quick else 9)
        if "periods" in parts:
            periods(it, result, 1 if args.quick else 3)
        if "methods" in parts:
            methods(it, result, 2 if args.quick else 5)
        if "budget" in parts:
            budget(it, result, 6 if args.quick else 20)
        if "raw" in parts:
            raw(it, result, 5 if args.quick else 61)
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
