"""What a slow span and a usual one spend on each stack, for files that other programs draw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tailscope.errors import LedgerError
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Frame, Samples, Stack, StackTables
from tailscope.statistics.code import Code
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.flame import CUT
from tailscope.statistics.slow_and_usual import LONGEST

#: The frames of a stack, the outermost first.
Chain = tuple[Frame, ...]
#: Times (ns) by cause and frames.
Means = dict[tuple[str, Chain], float]
#: The chain of a stack that is not in the ledger.
UNKNOWN: Chain = (Frame(CUT, "", 0),)


@dataclass(frozen=True)
class MeanStacks:
    """Some spans: the mean time of each of their stacks."""

    title: str
    ns: Means


def slow_and_usual(ledger: Ledger, explanation: Explanation) -> Iterator[MeanStacks]:
    """First those of the slow spans, then those of the usual ones."""
    found = code_of(explanation)
    name = explanation.span.name
    tables = StackTables(ledger)
    try:
        slow = tables.samples(name, found.tail_from_ns, LONGEST)
        usual = tables.samples(name, *found.usual_ns)
    finally:
        tables.close()
    yield MeanStacks(f"slow spans of {name}", means(slow, found.tail_spans))
    yield MeanStacks(f"usual spans of {name}", means(usual, found.usual_spans))


def code_of(explanation: Explanation) -> Code:
    """What stacks say of the slow spans; an error if there are no stacks."""
    if explanation.code is None:
        raise LedgerError("the ledger has no stacks of a tail: record with --stacks")
    return explanation.code


def means(samples: Samples, spans: float) -> Means:
    """The means for each span.

    Where a stack ends early, its outermost frame says so.
    """
    chains = chains_of(samples.stacks)
    sums: Means = {}
    times = samples.ns * samples.weight / max(spans, 1e-9)
    for cause, stack, ns in zip(samples.cause, samples.stack, times, strict=True):
        key = (cause, chains.get(int(stack), UNKNOWN))
        sums[key] = sums.get(key, 0.0) + float(ns)
    return sums


def chains_of(stacks: Mapping[int, Stack]) -> dict[int, Chain]:
    """The chains of stacks, by the stacks' keys."""
    return {key: outermost_first(stack) for key, stack in stacks.items()}


def outermost_first(stack: Stack) -> Chain:
    """The frames of a stack from its thread's first function on."""
    frames = tuple(reversed(stack.frames))
    return frames if stack.whole else (Frame(CUT, "", 0), *frames)
