"""What a slow span and a usual one spend on each stack, for files that other programs draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tailscope.errors import LedgerError
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Frame, Samples, Stack, StackTables
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.flame import CUT
from tailscope.statistics.slow_and_usual import LONGEST

#: Times (ns) by cause and frames; these have the outermost first.
Means = dict[tuple[str, tuple[Frame, ...]], float]


@dataclass(frozen=True)
class MeanStacks:
    """Some spans: the mean time of each of their stacks."""

    title: str
    ns: Means


def slow_and_usual(ledger: Ledger, explanation: Explanation) -> Iterator[MeanStacks]:
    """First those of the slow spans, then those of the usual ones."""
    found = explanation.code
    if found is None:
        raise LedgerError("the ledger has no stacks of a tail: record with --stacks")
    name = explanation.span.name
    tables = StackTables(ledger)
    try:
        slow = tables.samples(name, found.tail_from_ns, LONGEST)
        usual = tables.samples(name, *found.usual_ns)
    finally:
        tables.close()
    yield MeanStacks(f"slow spans of {name}", means(slow, found.tail_spans))
    yield MeanStacks(f"usual spans of {name}", means(usual, found.usual_spans))


def means(samples: Samples, spans: float) -> Means:
    """The means for each span.

    Where a stack ends early, its outermost frame says so.
    """
    chains = {key: outermost_first(stack) for key, stack in samples.stacks.items()}
    sums: Means = {}
    times = samples.ns * samples.weight / max(spans, 1e-9)
    for cause, stack, ns in zip(samples.cause, samples.stack, times, strict=True):
        key = (cause, chains.get(int(stack), (Frame(CUT, "", 0),)))
        sums[key] = sums.get(key, 0.0) + float(ns)
    return sums


def outermost_first(stack: Stack) -> tuple[Frame, ...]:
    """The frames of a stack from its thread's first function on."""
    frames = tuple(reversed(stack.frames))
    return frames if stack.whole else (Frame(CUT, "", 0), *frames)
