"""Which functions make slow spans slower than before, or faster: two recordings with stacks.

Slow spans are those at or above the target of their own recording. Under each cause that has surely
changed, a function's mean time in a slow span is compared, as `code` compares slow and usual spans.
The same rules decide which functions are named, for growth and for decline alike.

A file has another folder after an update, so files are matched by their names. Times are ns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tailscope.engines.grid import lower_edge
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Samples, Sampling, Stack, StackTables
from tailscope.quantity import Interval
from tailscope.statistics import code
from tailscope.statistics.change import Change
from tailscope.statistics.contribution import Side
from tailscope.statistics.slow_and_usual import LONGEST, Group, grouped


@dataclass(frozen=True)
class FunctionChange(code.Function):
    """The mean time of a function in a slow span of each recording."""

    base_ns: float
    new_ns: float
    change: Interval
    #: The change with all that the function called; None where it has no symbol.
    with_calls: Interval | None = None

    @classmethod
    def growth(cls, one: code.FunctionDifference) -> FunctionChange:
        """What NEW spends in a function beyond BASE."""
        place = (one.function, one.module, one.callers, one.through)
        return cls(*place, one.usual_ns, one.tail_ns, one.difference, one.with_calls)

    @classmethod
    def decline(cls, one: code.FunctionDifference) -> FunctionChange:
        """What BASE spends in a function beyond NEW."""
        place = (one.function, one.module, one.callers, one.through)
        with_calls = one.with_calls and negative(one.with_calls)
        return cls(*place, one.tail_ns, one.usual_ns, negative(one.difference), with_calls)


def negative(one: Interval) -> Interval:
    """The interval of the same quantity with the other sign."""
    return Interval(-one.ns, -one.hi, -one.lo)


@dataclass(frozen=True)
class CauseFunctions:
    """The functions of one cause that changed; the largest change first."""

    cause: str
    functions: tuple[FunctionChange, ...]


@dataclass(frozen=True)
class CodeChange:
    """What the stacks of two recordings say of the slow spans of one name."""

    #: Slow spans took at least so long.
    base_from_ns: int
    new_from_ns: int
    base_sampling: Sampling
    new_sampling: Sampling
    #: The causes that surely changed, the largest change first.
    causes: tuple[CauseFunctions, ...]

    def functions(self, cause: str) -> tuple[FunctionChange, ...]:
        """The functions that are named under a cause."""
        return next((one.functions for one in self.causes if one.cause == cause), ())

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)


class StackPair:
    """The stacks of two ledgers; to be closed."""

    def __init__(self, base: Ledger, new: Ledger) -> None:
        self.tables = (StackTables(base), StackTables(new))

    @property
    def warnings(self) -> Iterator[str]:
        """What the reader should know of them."""
        for title, tables in zip(("BASE", "NEW"), self.tables, strict=True):
            yield from (f"{title}: {warning}" for warning in tables.warnings)
        empty = [tables.is_empty for tables in self.tables]
        if empty[0] != empty[1]:
            yield f"{'BASE' if empty[0] else 'NEW'} has no stacks: functions are not compared"

    def compare(
        self, name: str, sides: tuple[Side, Side], change: Change, quantile: float, seed: int
    ) -> CodeChange | None:
        """The functions of one name that changed; None where a ledger has no stacks."""
        if any(tables.is_empty for tables in self.tables):
            return None
        groups = [slow(side, quantile) for side in sides]
        rng = np.random.default_rng(seed)
        parts = [
            code.Side.of(
                by_file_name(tables.samples(name, group.from_ns, LONGEST)), group.spans, rng
            )
            for tables, group in zip(self.tables, groups, strict=True)
        ]
        changed = [
            one.name
            for one in change.causes
            if one.change is not None and (one.change.lo > 0 or one.change.hi < 0)
        ]
        matters = abs(change.target.change.ns)
        samplings = [tables.sampling(name) for tables in self.tables]
        causes = tuple(
            CauseFunctions(cause, functions(cause, parts, groups, matters, rng))
            for cause in changed
            if all(cause in group.causes for group in groups)
        )
        return CodeChange(groups[0].from_ns, groups[1].from_ns, *samplings, causes)

    def close(self) -> None:
        """Let go of the files."""
        for tables in self.tables:
            tables.close()


def slow(side: Side, quantile: float) -> Group:
    """The spans of a side at or above its target."""
    place = side.walls.distribution().bin_at(quantile)
    edge = int(lower_edge(np.array([place]))[0])
    groups = grouped(side.spans, [edge], side.draws.counts)
    return groups(1, edge, LONGEST)


def functions(
    cause: str,
    parts: list[code.Side],
    groups: list[Group],
    matters_ns: float,
    rng: np.random.Generator,
) -> tuple[FunctionChange, ...]:
    """The functions of a cause that take longer in NEW, and those that take less time."""
    base, new = range(2)
    found: list[FunctionChange] = []
    ways = ((new, base, FunctionChange.growth), (base, new, FunctionChange.decline))
    for more, less, changed in ways:
        named = code.one_cause(
            cause,
            (parts[more], parts[less]),
            (groups[more].causes[cause], groups[less].causes[cause]),
            matters_ns,
            rng,
        ).functions
        found += map(changed, named)
    found.sort(key=lambda one: -abs(one.change.ns))
    return tuple(found[: code.NAMED])


def by_file_name(samples: Samples) -> Samples:
    """The same samples, with the files of their frames without folders."""
    stacks = {
        key: Stack(
            tuple(replace(frame, module=Path(frame.module).name) for frame in stack.frames),
            stack.whole,
        )
        for key, stack in samples.stacks.items()
    }
    return replace(samples, stacks=stacks)
