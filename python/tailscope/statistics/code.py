"""Down to the code: the functions in which slow spans spend more of a cause's time than usual ones.

A sample is a moment of a thread in a span. The samples divide a cause's exact mean, which the rows
tell, among functions. For each function, its mean in spans at or above the target is compared with
that in usual spans, those between the quartiles. Each sample counts for one function
(`blamed_function`). A function that leaves its work to others has little time of its own: so the
same comparison is made of all samples that have the function on their stack.

The interval is a bootstrap over spans for the division, and over time for the mean. A function is
named only if its difference is above zero beyond the doubt that comes with looking at many
functions, and is a part of the excess that matters.

Times are ns; shares are fractions, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Frame, Samples, Sampling, Stack, StackTables
from tailscope.quantity import Interval
from tailscope.statistics import flame
from tailscope.statistics.blamed_function import Blamed, blamed
from tailscope.statistics.flame import Call
from tailscope.statistics.slow_and_usual import Group, Mean

REPLICATES = 1000
#: Spans are put into at most this number of groups at random. The bootstrap draws groups.
GROUPS = 2000
#: Tail spans in which a function must have been seen.
FEWEST = 5
#: The least part of the tail's excess that is worth a name.
MATTERS = 0.05
#: Functions of a cause that are named at most.
NAMED = 5
#: The part of a function's time that its most frequent callers must have to be shown.
MOSTLY = 0.5
#: Functions of a cause that are looked at: those with the largest differences.
CANDIDATES = 200


@dataclass(frozen=True)
class Function:
    """A function to which time of a cause is put down."""

    function: str
    module: str
    #: The most frequent callers, the next first; empty where they are not known or differ.
    callers: tuple[str, ...]
    #: What the function waited in, where it waited: `pthread_mutex_lock`. Empty if nothing.
    through: str


@dataclass(frozen=True)
class FunctionDifference(Function):
    """What slow spans spend in a function beyond usual ones."""

    #: Means for each slow span, and for each usual one.
    tail_ns: float
    usual_ns: float
    difference: Interval
    #: Slow spans in which it was seen.
    spans: int
    #: The difference with all that the function called; None where it has no symbol.
    with_calls: Interval | None = None


@dataclass(frozen=True)
class CauseCode:
    """What is known of one cause's code."""

    cause: str
    #: The largest difference first; empty: no function takes longer beyond doubt.
    functions: tuple[FunctionDifference, ...]
    #: The mean time of all its samples in a slow span.
    sampled_ns: float
    #: Who called whom; None where no function is named.
    calls: Call | None = None


@dataclass(frozen=True)
class Code:
    """What stacks say of the slow spans of one name."""

    sampling: Sampling
    #: Slow spans took at least so long, and usual ones between these.
    tail_from_ns: int
    usual_ns: tuple[int, int]
    #: Spans (weighted) of each kind, and how many of them have samples.
    tail_spans: float
    usual_spans: float
    tail_sampled: int
    causes: tuple[CauseCode, ...] = field(default=())

    def functions(self, cause: str) -> tuple[FunctionDifference, ...]:
        """The functions that are named under a cause."""
        return next((one.functions for one in self.causes if one.cause == cause), ())

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)


def code(
    ledger: Ledger,
    span: str,
    groups: Callable[[], tuple[Group, Group]],
    excess_ns: float,
    seed: int,
) -> Code | None:
    """What stacks say of the slow spans of a name; None where the ledger has none.

    `groups`: gives the slow spans and the usual ones, which takes a look at every row.
    """
    tables = StackTables(ledger)
    try:
        if tables.is_empty:
            return None
        return compared(tables, span, groups(), max(excess_ns, 0.0), seed)
    finally:
        tables.close()


def compared(
    tables: StackTables, span: str, groups: tuple[Group, Group], excess_ns: float, seed: int
) -> Code:
    """The functions of slow spans against those of usual ones."""
    slow, usual = groups
    samples = [tables.samples(span, group.from_ns, group.to_ns) for group in groups]
    rng = np.random.default_rng(seed)
    sides = [Side.of(found, group.spans, rng) for found, group in zip(samples, groups, strict=True)]
    causes = []
    for cause in sorted({*samples[0].cause} & {*slow.causes}):
        means = (slow.causes[cause], usual.causes[cause])
        one = one_cause(cause, (sides[0], sides[1]), means, excess_ns, rng)
        if one.functions:
            paths = [
                flame.paths(found, cause, mean.ns)
                for found, mean in zip(samples, means, strict=True)
            ]
            one = replace(one, calls=flame.tree(cause, *paths))
        causes.append(one)
    causes.sort(key=lambda one: -sum(f.difference.ns for f in one.functions))
    return Code(
        sampling=tables.sampling(span),
        tail_from_ns=slow.from_ns,
        usual_ns=(usual.from_ns, usual.to_ns),
        tail_spans=slow.spans,
        usual_spans=usual.spans,
        tail_sampled=len(np.unique(samples[0].row)),
        causes=tuple(causes),
    )


@dataclass(frozen=True)
class Side:
    """Some spans with their samples, put together at random into groups that a replicate draws.

    Spans without a sample are spread evenly: they count in the means.
    """

    samples: Samples
    group: NDArray[np.int64]
    #: How many spans (weighted) each group has.
    weight: NDArray[np.float64]

    @classmethod
    def of(cls, samples: Samples, total: float, rng: np.random.Generator) -> Side:
        """The spans of these samples, and as many without one as there are in all."""
        rows, place = np.unique(samples.row, return_inverse=True)
        weights = np.zeros(len(rows))
        weights[place] = samples.weight
        typical = float(weights.mean()) if len(rows) else 1.0
        silent = max(total - float(weights.sum()), 0.0)
        spans = len(rows) + round(silent / max(typical, 1e-9))
        groups = int(min(max(spans, 1), GROUPS))
        # Each group gets as many spans: without a sample of chance beyond that of the spans.
        chosen = rng.permutation(spans)[: len(rows)] % groups
        counts = np.bincount(np.arange(spans) % groups, minlength=groups).astype(float)
        sampled = np.bincount(chosen, minlength=groups)
        weight = np.bincount(chosen, weights, minlength=groups) + (counts - sampled) * typical
        return cls(samples, chosen[place], np.maximum(weight, 1e-9))

    def draw(self, rng: np.random.Generator) -> NDArray[np.float64]:
        """How often each replicate (row) holds each group."""
        groups = len(self.weight)
        return rng.multinomial(groups, np.full(groups, 1 / groups), REPLICATES).astype(float)


def one_cause(
    cause: str,
    sides: tuple[Side, Side],
    means: tuple[Mean, Mean],
    excess_ns: float,
    rng: np.random.Generator,
) -> CauseCode:
    """The functions of one cause whose time differs. `means`: the cause's own, on each side."""
    found = [functions_of(side, cause) for side in sides]
    numbers: dict[tuple[str, str], int] = {}
    for key in (key for keys, *_ in found for key in keys if key is not None):
        numbers.setdefault(key, len(numbers))
    if not numbers:
        return CauseCode(cause, (), means[0].ns)
    counts = [side.draw(rng) for side in sides]
    parts = [
        divided(by_group(side, keys, entries, numbers), mean, drawn)
        for side, (keys, entries, _), mean, drawn in zip(sides, found, means, counts, strict=True)
    ]
    gap = parts[0].ns - parts[1].ns
    replicates = parts[0].draws - parts[1].draws
    # As many functions, as many chances to be above zero by luck (Bonferroni).
    strict = NormalDist().inv_cdf(1 - 0.025 / len(numbers))
    keys = list(numbers)
    named: list[FunctionDifference] = []
    for number in np.argsort(-gap)[:CANDIDATES]:
        difference = interval(gap[number], replicates[:, number])
        doubt = strict * float(replicates[:, number].std())
        if difference.lo <= 0 or difference.ns <= max(doubt, MATTERS * excess_ns, 0.0):
            continue
        told = describe(keys[number], found[0], sides[0])
        if told.spans < FEWEST:
            continue
        named.append(
            FunctionDifference(
                function=told.name,
                module=told.module,
                callers=told.callers,
                through=told.through,
                tail_ns=float(parts[0].ns[number]),
                usual_ns=float(parts[1].ns[number]),
                difference=difference,
                spans=told.spans,
                with_calls=with_calls(keys[number], found, sides, means, counts),
            )
        )
        if len(named) == NAMED:
            break
    return CauseCode(cause, tuple(named), means[0].ns)


def with_calls(
    key: tuple[str, str],
    found: Sequence[Found],
    sides: tuple[Side, Side],
    means: tuple[Mean, Mean],
    counts: Sequence[NDArray[np.float64]],
) -> Interval | None:
    """The difference of a cause's time in a function and in all that it called.

    `counts`: how often each replicate holds each group, on each side. None without a symbol:
    all functions of its file have the same name.
    """
    if not key[0]:
        return None
    base, draws = 0.0, np.zeros(REPLICATES)
    for sign, (_, entries, _), side, mean, drawn in zip(
        (1, -1), found, sides, means, counts, strict=True
    ):
        on_stack = {number for number, stack in side.samples.stacks.items() if calls(stack, key)}
        there = np.isin(side.samples.stack[entries], list(on_stack))
        total = time_by_group(side, entries, np.where(there, 0, 1), 2)
        part = divided(total, mean, drawn)
        base, draws = base + sign * float(part.ns[0]), draws + sign * part.draws[:, 0]
    return interval(base, draws)


def calls(stack: Stack, key: tuple[str, str]) -> bool:
    """Whether a function is on a stack."""
    return any((frame.function, frame.module) == key for frame in stack.frames)


def interval(ns: float, draws: NDArray[np.float64]) -> Interval:
    """An estimate with the 95 % interval of its replicates."""
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(float(ns), min(float(ns), float(low)), max(float(ns), float(high)))


@dataclass(frozen=True)
class Parts:
    """The mean time of each function, and that of each replicate (row)."""

    ns: NDArray[np.float64]
    draws: NDArray[np.float64]


def divided(total: NDArray[np.float64], mean: Mean, counts: NDArray[np.float64]) -> Parts:
    """A cause's mean divided among functions (columns), by their parts of its samples.

    The samples' own sum is not used: a tick of the clock can be what slows a span down, and then
    slow spans have more samples than time. Without a sample, any function may have it all.
    """
    whole = total.sum()
    if whole <= 0:
        every = np.ones(total.shape[1])
        return Parts(mean.ns * every, np.outer(fitting(mean.draws, len(counts)), every))
    drawn = counts @ total
    sums = drawn.sum(axis=1)
    # A replicate that drew no span with a sample says nothing: it is taken as the estimate.
    shares = np.where(
        (sums > 0)[:, None], drawn / np.maximum(sums, 1e-9)[:, None], total.sum(axis=0) / whole
    )
    draws = fitting(mean.draws, len(counts))[:, None] * shares
    return Parts(mean.ns * total.sum(axis=0) / whole, draws)


def fitting(draws: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """As many replicates as are wanted."""
    return np.resize(draws, count)


Value = TypeVar("Value")
#: Of each sample its function's key, which samples are the cause's, and what each stack says.
Found = tuple[list[tuple[str, str] | None], NDArray[np.int64], dict[int, Blamed | None]]


def functions_of(side: Side, cause: str) -> Found:
    """The functions of a cause's samples."""
    samples = side.samples
    entries = np.flatnonzero(np.array([one == cause for one in samples.cause], dtype=bool))
    known = {
        int(stack): blamed(samples.stacks.get(int(stack), Stack((), False)), cause)
        for stack in np.unique(samples.stack[entries])
    }
    keys = []
    for entry in entries:
        told = known[int(samples.stack[entry])]
        keys.append(told.key if told else None)
    return keys, entries, known


def by_group(
    side: Side,
    keys: Sequence[tuple[str, str] | None],
    entries: NDArray[np.int64],
    numbers: dict[tuple[str, str], int],
) -> NDArray[np.float64]:
    """Weighted time by group and function."""
    column = np.array([-1 if key is None else numbers[key] for key in keys], dtype=np.int64)
    return time_by_group(side, entries[column >= 0], column[column >= 0], len(numbers))


def time_by_group(
    side: Side, entries: NDArray[np.int64], column: NDArray[np.int64], columns: int
) -> NDArray[np.float64]:
    """Weighted time of some samples by group and column; `column`: that of each sample."""
    total = np.zeros((len(side.weight), columns))
    ns = side.samples.ns[entries] * side.samples.weight[entries]
    np.add.at(total, (side.group[entries], column), ns)
    return total


@dataclass(frozen=True)
class Description:
    """A function in words."""

    name: str
    module: str
    callers: tuple[str, ...]
    through: str
    spans: int


def describe(key: tuple[str, str], found: Found, side: Side) -> Description:
    """What is known of a function from the slow spans' samples."""
    keys, entries, known = found
    samples = side.samples
    places: dict[Frame, float] = {}
    callers: dict[tuple[str, ...], float] = {}
    through: dict[str, float] = {}
    rows = set()
    for one, entry in zip(keys, entries, strict=True):
        told = known[int(samples.stack[entry])]
        if one != key or told is None:
            continue
        ns = float(samples.ns[entry] * samples.weight[entry])
        rows.add(int(samples.row[entry]))
        places[told.frame] = places.get(told.frame, 0.0) + ns
        callers[told.callers] = callers.get(told.callers, 0.0) + ns
        through[told.through] = through.get(told.through, 0.0) + ns
    name = max(places, key=lambda frame: places[frame]).name if places else key[0]
    return Description(name, key[1], mostly(callers) or (), mostly(through) or "", len(rows))


def mostly(times: dict[Value, float]) -> Value | None:
    """What has most of the time, if it is more than half."""
    if not times:
        return None
    best = max(times, key=lambda one: times[one])
    return best if times[best] > MOSTLY * sum(times.values()) else None
