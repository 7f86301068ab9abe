"""VarMRI's rules: what is left of an impact value when other events explain it (DESIGN §5.2).

An impact value leaves whole spans out, so an event is also blamed for what comes along with it.
Two rules know the direction of the blame. Where neither applies, the pair is reported with its
correlation and left to the reader.

1. Group rank. Instructions explain cache misses, and both explain cycles. The impact of a counter
   of a lower group is cut by the largest product, over the counters of higher groups, of the
   other's impact and the overlap (Jaccard) of the spans that have much of either.
2. Parent and child. An event that is in proportion to the event that brings it about (R² above
   0.99) says nothing of its own, and is dropped from the ranking.

What "in proportion" is, a method says (`varmri`):

- `pearson`, the default: R² of the straight line through both events' values. A child that goes up
  and down with its parent is dropped, also where it has a constant part.
- `origin`, the paper's: R² of the line through the origin. It is measured from 0, so two events
  that hardly vary are always in proportion: where both vary by a twentieth, any two are, whatever
  they do. That would drop children that do have something of their own to say.

All joint figures are weighted, and over the spans in which both events were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.sample import Sample
from tailscope.ledger.counters import COUNTERS, group_of, parents_of
from tailscope.statistics.varmri import ORIGIN, PEARSON, VarMRI

#: child → parent. A softirq runs because an interrupt raised it. The ledger's other causes are
#: exclusive lengths of time that do not bring each other about.
PARENTS = {
    "softirq_net": "irq",
    "softirq_timer": "irq",
    "softirq_other": "irq",
}

#: Events whose impact is below this part of the target are not asked with whom they go.
NOTABLE = 0.02
#: A pair is worth a word from this correlation or overlap on.
RELATED = 0.3


@dataclass(frozen=True)
class Event:
    """A cause or counter with its impact value and the value from which on a span has much."""

    name: str
    impact: float | None
    high_from: int | None


@dataclass(frozen=True)
class Verdict:
    """What the rules leave of an event's impact; None where it was dropped or had none."""

    impact: float | None
    #: The event of a higher group that took part of the impact.
    cut_by: str | None = None
    #: The parent in proportion to which the event goes.
    follows: str | None = None


@dataclass(frozen=True)
class Pair:
    """Two events that go together and that no rule tells apart."""

    events: tuple[str, str]
    #: Pearson's, of their values; None where one of them is constant.
    correlation: float | None
    #: Jaccard's, of the spans that have much of either, 0 to 1.
    overlap: float


def judge(
    events: Sequence[Event], sample: Sample, method: VarMRI
) -> tuple[dict[str, Verdict], tuple[Pair, ...]]:
    """Apply both rules; return the verdicts by name, and the pairs that are left."""
    by_name = {event.name: event for event in events if event.impact is not None}
    verdicts = {event.name: Verdict(event.impact) for event in events}
    for name, event in by_name.items():
        parent = followed(name, [one for one in parents(name) if one in by_name], sample, method)
        if parent:
            verdicts[name] = Verdict(None, follows=parent)
        elif name in COUNTERS:
            verdicts[name] = cut(event, higher(name, by_name.values()), sample)
    standing = [
        event for event in by_name.values() if (verdicts[event.name].impact or 0.0) >= NOTABLE
    ]
    pairs = (
        Pair((one.name, other.name), correlation(sample, one.name, other.name), overlap)
        for one, other in combinations(standing, 2)
        if not covered(one.name, other.name)
        for overlap in (jaccard(sample, one, other),)
    )
    related = [pair for pair in pairs if max(abs(pair.correlation or 0.0), pair.overlap) >= RELATED]
    related.sort(key=lambda pair: abs(pair.correlation or 0.0), reverse=True)
    return verdicts, tuple(related)


def parents(name: str) -> tuple[str, ...]:
    """The events that bring an event about, the nearest first."""
    return (PARENTS[name],) if name in PARENTS else parents_of(name)


def followed(name: str, above: Iterable[str], sample: Sample, method: VarMRI) -> str | None:
    """The first of some parents in proportion to which an event goes."""
    for parent in above:
        if proportion(sample, name, parent, method.proportional) > method.proportion:
            return parent
    return None


def higher(name: str, events: Iterable[Event]) -> list[Event]:
    """The counters of higher groups than a counter's."""
    group = group_of(name)
    return [one for one in events if group and (group_of(one.name) or 0) > group]


def covered(one: str, other: str) -> bool:
    """Whether a rule speaks of the pair."""
    groups = (group_of(one), group_of(other))
    if None not in groups and groups[0] != groups[1]:
        return True
    return other in parents(one) or one in parents(other)


def cut(event: Event, above: Iterable[Event], sample: Sample) -> Verdict:
    """Rule 1; never below 0."""
    taken, by = 0.0, None
    for other in above:
        share = max(other.impact or 0.0, 0.0) * jaccard(sample, event, other)
        if share > taken:
            taken, by = share, other.name
    impact = event.impact or 0.0
    return Verdict(max(impact - taken, min(impact, 0.0)), cut_by=by)


def jaccard(sample: Sample, one: Event, other: Event) -> float:
    """The spans that have much of both events, as a part of those that have much of either."""
    if one.high_from is None or other.high_from is None:
        return 0.0
    known = sample.where_known((one.name, other.name))
    weight = sample.weight[known]
    first = sample.values[one.name][known] >= one.high_from
    second = sample.values[other.name][known] >= other.high_from
    either = float(weight[first | second].sum())
    return float(weight[first & second].sum()) / either if either > 0 else 0.0


def correlation(sample: Sample, one: str, other: str) -> float | None:
    """Pearson's correlation of two events' values; None where one of them does not vary."""
    known = sample.where_known((one, other))
    weight = sample.weight[known]
    if weight.sum() <= 0:
        return None
    x, y = (centred(sample.values[name][known], weight) for name in (one, other))
    spread = float(weight @ (x * x)) * float(weight @ (y * y))
    if spread <= 0:
        return None
    return float(np.clip(float(weight @ (x * y)) / np.sqrt(spread), -1.0, 1.0))


def centred(values: NDArray, weight: NDArray) -> NDArray[np.float64]:
    """Values less their weighted mean."""
    return values - float(weight @ values) / float(weight.sum())


def proportion(sample: Sample, child: str, parent: str, rule: str = PEARSON) -> float:
    """R² of the straight line through two events' values; 0 where they go opposite ways."""
    if rule == ORIGIN:
        return through_origin(sample, child, parent)
    found = correlation(sample, child, parent)
    return found**2 if found is not None and found > 0 else 0.0


def through_origin(sample: Sample, child: str, parent: str) -> float:
    """R² of parent = constant × child: how much of the parent's squares that line explains."""
    known = sample.where_known((child, parent))
    weight = sample.weight[known]
    x, y = (sample.values[name][known].astype(np.float64) for name in (child, parent))
    squares = float(weight @ (x * x)) * float(weight @ (y * y))
    return float(weight @ (x * y)) ** 2 / squares if squares > 0 else 0.0
