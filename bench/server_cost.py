"""What recording costs a server: phases without a recorder, with empty programs on its tracepoints,
and with it, alternating in one run.

The server and its load are busy_server.py's. A round is one phase of each kind next to each other,
in an order that changes; a recorder's start and end lie between phases. From each round come
throughput with ÷ without, and the same from the server's CPU time per request, which other work on
the machine disturbs far less. The empty programs tell what part of that is the kernel's own price
of calling a program.

    .venv/bin/python bench/server_cost.py
    .venv/bin/python bench/server_cost.py --case recv..send --pairs 40

With --case the other cases stay in the result as they were, if they are of this kind of machine.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, dataclass

from busy_server import CASES, SETTLE, Case, Phase, arguments, chosen, measure, under_load
from empty_hooks import empty_hooks
from harness import Bench, Recording, Result, at_least, bench, known, lost, spread, table
from machine import machine


@dataclass(frozen=True)
class Round:
    """Three phases next to each other."""

    without: Phase
    hooked: Phase  # programs that do nothing, on the recorder's tracepoints
    recorded: Phase


def compare(b: Bench, case: Case, args: argparse.Namespace) -> tuple[list[Round], int, int]:
    """Rounds of phases, and the rows of all of them, seen and lost."""
    rounds, rows, rows_lost = [], 0, 0

    def phase() -> Phase:
        time.sleep(SETTLE)
        return measure(server, load, args.phase)

    def hooked() -> Phase:
        with empty_hooks(case.hooks):
            return phase()

    def recorded() -> Phase:
        nonlocal rows, rows_lost
        recording = Recording(b, server.pid, case.options, args.recorder_cpu)
        measured = phase()
        ledger = recording.stop()
        rows += ledger["rows"]
        rows_lost += lost(ledger)
        return measured

    with under_load(b, case, args.connections) as (server, load):
        for i in range(args.pairs):
            # Each kind comes first, second and third equally often, and in both directions.
            kinds = [("without", phase), ("hooked", hooked), ("recorded", recorded)]
            order = kinds[i % 3 :] + kinds[: i % 3]
            measured = {name: take() for name, take in (order[::-1] if i % 2 else order)}
            rounds.append(Round(**measured))
    return rounds, rows, rows_lost


def report(result: Result, case: Case, rounds: list[Round], rows: int, rows_lost: int) -> None:
    """One case's table and bar."""
    throughput = spread([r.recorded.rate / r.without.rate for r in rounds])
    by_cpu = spread([r.without.cpu_per_request / r.recorded.cpu_per_request for r in rounds])
    floor = spread([r.without.cpu_per_request / r.hooked.cpu_per_request for r in rounds])
    added = spread([r.recorded.cpu_per_request - r.without.cpu_per_request for r in rounds])
    hooks = spread([r.hooked.cpu_per_request - r.without.cpu_per_request for r in rounds])
    lines = []
    for name in ("without", "hooked", "recorded"):
        phases: list[Phase] = [getattr(r, name) for r in rounds]
        lines.append(
            (
                {"without": "no recorder", "hooked": "empty programs"}.get(name, name),
                spread([p.rate / 1000 for p in phases]).text(),
                spread([p.cpu_per_request for p in phases]).text(0),
                spread([100 * p.busy for p in phases]).text(0),
                spread([100 * p.taken for p in phases]).text(0),
                spread([100 * p.generator for p in phases]).text(0),
            )
        )
    head = (
        "phases",
        "1,000 requests/s",
        "server CPU ns/request",
        "server % of its CPU",
        "others % of it",
        "generator %",
    )
    text = [
        table(head, lines),
        "",
        f"- throughput, recorded ÷ not: {throughput.text(3)}, 95 % interval of the median "
        f"{throughput.interval(3)}, {len(rounds)} rounds",
        f"- the same by CPU time a request: {by_cpu.text(3)}, 95 % interval {by_cpu.interval(3)}; "
        f"{added.text(0)} ns added to a request",
        f"- of that the kernel's own cost of calling programs, measured with empty ones: "
        f"{hooks.text(0)} ns, which leaves {floor.text(3)}, 95 % interval {floor.interval(3)}",
        f"- {rows} rows, {rows_lost} lost",
    ]
    result.say(f"{case.server}, {case.name}", "\n".join(text))
    what = f"{case.server}'s throughput, {case.name}"
    bar = at_least(what, case.bar, throughput, "of that without a recorder", 3)
    by = f"by CPU time {by_cpu.median:.3f}, with empty programs {floor.median:.3f}"
    bar.note = f"{bar.note}; {by}" if bar.note else by
    result.bars.append(bar)
    if not result.summary:
        result.summary = (
            f"recorded {case.server}, {case.name}: {added.median:+.0f} ns of CPU time a request, "
            f"of which empty programs take {hooks.median:+.0f}"
        )
    result.figures[case.name] = {
        "throughput": vars(throughput),
        "by_cpu": vars(by_cpu),
        "by_cpu_empty_programs": vars(floor),
        "added_ns": vars(added),
        "added_ns_empty_programs": vars(hooks),
        "rows": rows,
        "lost": rows_lost,
        "rounds": [asdict(r) for r in rounds],
    }


def known_rounds() -> dict[str, tuple[list[Round], int, int]]:
    """What an earlier run on this kind of machine measured, by case."""
    earlier = known("server_cost")
    if earlier.get("machine") != machine():
        return {}
    return {
        name: (
            [Round(**{kind: Phase(**r[kind]) for kind in r}) for r in figures["rounds"]],
            figures["rows"],
            figures["lost"],
        )
        for name, figures in earlier["figures"].items()
    }


def main() -> None:
    """Measure, print, write."""
    args, cases = chosen(arguments(__doc__))
    result = Result("server_cost", "What recording costs a server")
    earlier = known_rounds() if args.case else {}
    with bench() as b:
        for case in CASES:
            if case in cases:
                report(result, case, *compare(b, case, args))
            elif case.name in earlier:
                report(result, case, *earlier[case.name])
    if not args.no_result:
        result.write()


if __name__ == "__main__":
    main()
