"""What the recorder's programs add to a request beyond empty ones, in ns, with no server around it.

One thread sends and receives over a loopback connection of its own (c/hook_cost.c), so each hook
that a request meets is hit once: the receive, the send, and the entry and exit of the packet's
softirq. Nobody, empty programs on those tracepoints, and the recorder take turns around it. Batches
are so short that many meet no other work of the machine: a turn counts by its undisturbed batches,
the tenth percentile.

    .venv/bin/python bench/hook_cost.py

What a bar in per cent asks depends on how long a server's request is: the last columns say from
which length on it holds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
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


CASES = [
    Case("recv..send", ("--span", "syscall:recv..send"), SOCKETS, 0.95),
    Case("recv..send, 1%", ("--span", "syscall:recv..send", "--sample", "1%"), SOCKETS, 0.98),
    Case("sdk", ("--span", "sdk"), SOFTIRQ, 0.99, annotated=True),
]


class Program:
    """bench/c/hook_cost.c."""

    def __init__(self, b: Bench, args: argparse.Namespace) -> None:
        words = [SERVER_CPU, args.batch, args.memory, args.pause]
        self.process = b.start(
            [b.compile("hook_cost.c"), *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def measure(self, batches: int, annotated: bool) -> float:
        """ns a request of undisturbed batches."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(batches, int(annotated), file=self.process.stdin, flush=True)
        ns = json.loads(self.process.stdout.readline())
        return statistics.quantiles(ns, n=10)[0]


@contextlib.contextmanager
def recorded(b: Bench, program: Program, case: Case, losses: list[int]) -> Iterator[None]:
    """The recorder; what it lost goes onto the list."""
    recording = Recording(b, program.process.pid, case.options, SPARE_CPU)
    try:
        yield
    finally:
        losses.append(lost(recording.stop()))


def compare(
    b: Bench, program: Program, case: Case, args: argparse.Namespace
) -> tuple[dict[str, list[float]], int]:
    """ns a request by who listens, turn by turn, and the rows lost."""
    losses: list[int] = []
    states: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        "nobody": contextlib.nullcontext,
        "empty programs": lambda: empty_hooks(case.hooks),
        "tailscope": lambda: recorded(b, program, case, losses),
    }
    seen: dict[str, list[float]] = {name: [] for name in states}
    for turn in range(args.turns):
        names = list(states)[:: -1 if turn % 2 else 1]
        for name in names:
            with states[name]():
                program.measure(max(3, args.batches // 10), case.annotated)
                seen[name].append(program.measure(args.batches, case.annotated))
    return seen, sum(losses)


def main() -> None:
    """Measures, and writes bench/results/hook_cost.*."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=20, help="of each who listens")
    parser.add_argument("--batches", type=int, default=400, help="in a turn")
    parser.add_argument("--batch", type=int, default=100, help="requests in a batch")
    parser.add_argument("--memory", type=int, default=48, help="kB that a request touches")
    parser.add_argument("--pause", type=int, default=300, help="us between batches")
    parser.add_argument("--quick", action="store_true", help="three turns, nothing written")
    args = parser.parse_args()
    if args.quick:
        args.turns = 3
    result = Result("hook_cost", "What hooks cost a request")
    rows = []
    with bench() as b:
        program = Program(b, args)
        for case in CASES:
            seen, rows_lost = compare(b, program, case, args)
            nobody, empty, ours = (seen[n] for n in ("nobody", "empty programs", "tailscope"))
            floor = spread([e - n for e, n in zip(empty, nobody, strict=True)])
            added = spread([o - e for o, e in zip(ours, empty, strict=True)])
            whole = spread([o - n for o, n in zip(ours, nobody, strict=True)])
            times = case.bar / (1 - case.bar)  # of what is added: T / (T + added) = bar
            rows.append(
                (
                    case.name,
                    str(len(case.hooks)),
                    spread(nobody).text(0),
                    floor.text(0),
                    added.text(0),
                    f"{floor.median * times / 1000:.1f} us",
                    f"{whole.median * times / 1000:.1f} us",
                )
            )
            result.figures[case.name] = {
                "empty_programs_ns": vars(floor),
                "added_ns": vars(added),
                "together_ns": vars(whole),
                "bar": case.bar,
                "rows_lost": rows_lost,
            }
    head = (
        "recorded",
        "hits",
        "ns a request, nobody",
        "empty programs add",
        "ours add to that",
        "bar holds from: empty",
        "bar holds from: ours",
    )
    result.say("ns a request: median [quartiles] of turns", table(head, rows))
    if not args.quick:
        result.write()


if __name__ == "__main__":
    main()
