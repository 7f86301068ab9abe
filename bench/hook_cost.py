"""What the recorder's programs add to a request beyond empty ones, in ns, with no server around it.

A thread sends and receives over a loopback connection of its own (c/hook_cost.c), so each hook that
a request meets is hit once: the receive, the send, and the entry and exit of the packet's softirq.

What empty programs on those tracepoints add, short turns with and without them tell. What ours add
to that, two processes tell that take turns, a batch each, while one of them is recorded: for the
other our programs are as good as empty. So the speed of the machine, which changes from second to
second, is in both. What sets the two apart without a recorder (whose memory lies better in the
caches) is taken off, and batches that other work disturbed are left out.

    .venv/bin/python bench/hook_cost.py

What a bar in per cent asks depends on how long a server's request is: the last columns say from
which length on it holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from dataclasses import dataclass

from empty_hooks import empty_hooks
from harness import SERVER_CPU, SPARE_CPU, Bench, Recording, Result, bench, lost, spread, table

SOFTIRQ = ("softirq_entry", "softirq_exit")
SOCKETS = ("sock_recv_length", "sock_send_length", *SOFTIRQ)


@dataclass(frozen=True)
class Case:
    """A way to record, the tracepoints that a request hits, and the bar of throughput."""

    name: str
    options: tuple[str, ...]
    hooks: tuple[str, ...]
    bar: float
    annotated: bool = False


READY = (*SOCKETS, "sk_data_ready")
CASES = [
    Case("recv..send", ("--span", "syscall:recv..send"), SOCKETS, 0.95),
    Case("recv..send, 1%", ("--span", "syscall:recv..send", "--sample", "1%"), SOCKETS, 0.98),
    Case("ready..send", ("--span", "syscall:ready..send"), READY, 0.95),
    Case("request", ("--span", "request"), READY, 0.95),
    Case("request without names", ("--span", "request", "--no-names"), READY, 0.95),
    Case("sdk", ("--span", "sdk"), SOFTIRQ, 0.99, annotated=True),
]


#: A pair of batches counts if neither took so much longer than the typical one: it was disturbed.
DISTURBED = 1.5


class Program:
    """bench/c/hook_cost.c."""

    def __init__(self, b: Bench, args: argparse.Namespace) -> None:
        words = [SERVER_CPU, args.batch, args.memory, args.pause]
        self.process = b.start(
            [b.compile("hook_cost.c"), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def measure(self, rounds: int, annotated: bool) -> list[tuple[float, float]]:
        """ns a request of undisturbed batches: the recorded process, and the other."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(rounds, int(annotated), file=self.process.stdin, flush=True)
        pairs = json.loads(self.process.stdout.readline())
        limit = DISTURBED * statistics.median(other for _, other in pairs)
        return [(ours, other) for ours, other in pairs if max(ours, other) < limit]


def typical(pairs: list[tuple[float, float]]) -> float:
    """ns a request, whoever ran it."""
    return statistics.median(ns for pair in pairs for ns in pair)


def empty_cost(program: Program, case: Case, turns: int) -> tuple[list[float], list[float]]:
    """ns a request without hooks, and what empty programs add to them, turn by turn."""
    bare, added = [], []
    for turn in range(turns):
        without = typical(program.measure(60, False)) if turn % 2 else 0.0
        with empty_hooks(case.hooks):
            hooked = typical(program.measure(60, False))
        without = without or typical(program.measure(60, False))
        bare.append(without)
        added.append(hooked - without)
    return bare, added


def our_cost(
    b: Bench, program: Program, case: Case, args: argparse.Namespace
) -> tuple[list[float], int]:
    """What recording adds to a request, pair by pair of batches, and the rows lost."""
    options = (*case.options, "--no-children")
    added, rows_lost = [], 0
    for _ in range(args.turns // 5):
        apart = differences(program.measure(200, case.annotated))
        recording = Recording(b, program.process.pid, options, SPARE_CPU)
        program.measure(20, case.annotated)
        together = differences(program.measure(500, case.annotated))
        rows_lost += lost(recording.stop())
        apart += differences(program.measure(200, case.annotated))
        added += [ns - statistics.median(apart) for ns in together]
    return added, rows_lost


def differences(pairs: list[tuple[float, float]]) -> list[float]:
    """By how much the first process's batches are slower."""
    return [ours - other for ours, other in pairs]


def main() -> None:
    """Measures, and writes the result."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=40, help="with and without empty programs")
    parser.add_argument("--batch", type=int, default=100, help="requests in a batch")
    parser.add_argument("--memory", type=int, default=48, help="kB that a request touches")
    parser.add_argument("--pause", type=int, default=300, help="us between batches")
    parser.add_argument("--quick", action="store_true", help="five turns, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.turns = 5
    result = Result("hook_cost", "What hooks cost a request")
    rows = []
    with bench() as b:
        program = Program(b, args)
        for case in CASES:
            bare, empty = (spread(ns) for ns in empty_cost(program, case, args.turns))
            ours, rows_lost = our_cost(b, program, case, args)
            added = spread(ours)
            times = case.bar / (1 - case.bar)  # of what is added: T / (T + added) = bar
            rows.append(
                (
                    case.name,
                    str(len(case.hooks)),
                    bare.text(0),
                    f"{empty.text(0)}, 95 % {empty.interval(0)}",
                    f"{added.text(0)}, 95 % {added.interval(0)}",
                    f"{case.bar:.2f}",
                    f"{empty.median * times / 1000:.1f} us",
                    f"{(empty.median + added.median) * times / 1000:.1f} us",
                )
            )
            result.figures[case.name] = {
                "bare_ns": vars(bare),
                "empty_programs_ns": vars(empty),
                "added_ns": vars(added),
                "bar": case.bar,
                "rows_lost": rows_lost,
            }
    head = (
        "recorded",
        "hits",
        "ns a request, no hooks",
        "empty programs add",
        "ours add to that",
        "bar",
        "it holds from, with empty programs",
        "it holds from, with ours",
    )
    result.say("ns a request: median [quartiles] of turns, of pairs of batches", table(head, rows))
    added = (f"{name} {case['added_ns']['median']:.0f}" for name, case in result.figures.items())
    result.summary = f"ns a request above empty programs: {'; '.join(added)}"
    if not args.quick:
        result.write()


if __name__ == "__main__":
    main()
