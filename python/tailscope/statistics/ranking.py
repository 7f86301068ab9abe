"""The ranking: what each cause of a set of spans is worth, by both methods. These are savings with
fair shares, and impact values under their rules.

Times are float or whole nanoseconds in fields that end in `_ns`; shares are fractions, 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.engines import measure
from tailscope.engines.draw import sample
from tailscope.engines.grid import lower_edge
from tailscope.engines.penalty import Penalty
from tailscope.engines.sample import Sample
from tailscope.engines.spans import Spans
from tailscope.engines.timed import Timed
from tailscope.ledger.causes import MEANING, RUNNING
from tailscope.quantity import Interval
from tailscope.statistics import bootstrap, counterfactual, rules, shapley
from tailscope.statistics.base import Base, over
from tailscope.statistics.blame import Blame, blame
from tailscope.statistics.cache_penalty import put_down
from tailscope.statistics.composition import Composition
from tailscope.statistics.counter_impact import (
    CounterImpact,
    Frequency,
    count_events,
    with_cycle_time,
)
from tailscope.statistics.counterfactual import Baseline, Counterfactual
from tailscope.statistics.fix import Remedies
from tailscope.statistics.interrupt_penalty import InterruptPenalty
from tailscope.statistics.rules import Event, Pair, Verdict
from tailscope.statistics.shapley import Shares
from tailscope.statistics.strike import Strike, strike
from tailscope.statistics.target import Target
from tailscope.statistics.varmri import VarMRI

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

#: Rows above the target that are enough to judge by.
ENOUGH = 100
#: A cause that saves this part of (target - median) explains the tail by itself.
ALONE = 0.25
#: How many causes at most are fixed at once.
TOGETHER = 3


@dataclass(frozen=True)
class Cause:
    """One row of the table: what a cause has to do with the tail."""

    name: str
    meaning: str
    #: Its part (0 to 1) of the time that the tail takes longer than the median: its mean in spans
    #: at or above the target less its mean in the median band, over the sum of all these
    #: differences that are above 0. So the parts add up to 1, and a cause of which the tail has
    #: less has 0. None where the tail does not take longer. With another base than the median
    #: (`base`), its part of the time that spans around the target take longer than the base.
    share: float | None
    #: Its mean in spans at or above the target, or around a target at or below the median.
    tail_mean_ns: float
    #: Its mean in the median band, or in the base.
    median_mean_ns: float
    #: The cause's own median over all spans.
    median_ns: float
    #: What the counterfactual brings it down to: its median, or another base.
    base_ns: float
    #: The target percentile with the cause fixed, and how much lower that is.
    predicted: Interval
    saving: Interval
    #: The part of the saving that is the cache penalty: running of the spans that it struck.
    cold_ns: float
    #: How much more it saves if all running goes with it that may be its cache penalty. The
    #: intervals hold both.
    perhaps_ns: float
    #: Its part of what all causes together save, by Shapley; None where it took no part in that.
    fair_ns: float | None
    #: VarMRI's impact value, a fraction of the target; and from how many ns a span was left out.
    impact: float | None
    high_from_ns: int | None
    #: The part of the spans (0 to 1) that the impact value leaves out.
    high_share: float
    #: What the rules leave of the impact: None where the cause only goes in proportion to another,
    #: which is `follows`.
    ranked_impact: float | None
    follows: str | None
    #: The part of the rows (0 to 1, weighted) in which it was measured: those judge it.
    measured_share: float
    #: Spans with the cause (weighted), their part of all spans, and the cause's events.
    spans: float
    spans_share: float
    events: float | None
    #: Who is to blame for it in the tail; None where nobody is named.
    blame: Blame | None = None


@dataclass(frozen=True)
class Ranking:
    """All causes of a set of spans."""

    #: The most valuable first (`ordered`).
    causes: tuple[Cause, ...]
    #: How what all causes together save is divided among them.
    shares: Shares | None
    counters: tuple[CounterImpact, ...]
    #: None where no cycles were counted.
    frequency: Frequency | None
    #: Causes and counters that go together and that no rule tells apart.
    pairs: tuple[Pair, ...]
    #: The percentile with several causes fixed at once.
    together: tuple[tuple[tuple[str, ...], Counterfactual], ...]
    remedies: Remedies
    composition: Composition


def rank_all(
    spans: Spans,
    baseline: Baseline,
    target: Target,
    seed: int,
    method: VarMRI,
    base: Base | None = None,
) -> Ranking:
    """Rank every cause and counter of some spans, against a base."""
    base = base or Base.for_target(target)
    drawn = sample(spans, baseline.whole, target.quantile, seed)
    struck, composition, rest_known = strike_all(spans, baseline, target, method, drawn, base)
    counted = count_events(spans, baseline, drawn, method)
    means = {name: held_against(name, one, composition, base) for name, one in struck.items()}
    parts = dict(zip(means, over(list(means.values())), strict=True))
    found = [row(name, one, means[name], parts[name]) for name, one in struck.items()]
    found = ordered(found, baseline, base)
    remedies = Remedies(
        {name: one.base_ns for name, one in struck.items()},
        {name: one.penalty for name, one in struck.items() if one.penalty},
        {name: one.perhaps for name, one in struck.items() if one.perhaps},
        {name: one.usual_ns for name, one in struck.items() if one.usual_ns is not None},
    )
    together = counterfactual.together(spans, baseline, remedies, worth_fixing(found))
    drawn = drawn.resting_on(rest_known)
    exclusive = put_down(drawn, list(remedies.penalties.values()))
    shares = shapley.shapley(exclusive, remedies.medians, worth_sharing(found), target.quantile)
    floor_ns = int(lower_edge(baseline.whole.bin_at(target.quantile)))
    found = [replace(cause, blame=blame(spans, floor_ns, cause.name)) for cause in found]
    causes = [Event(cause.name, cause.impact, cause.high_from_ns) for cause in found]
    counters, drawn, frequency = with_cycle_time(counted, drawn, baseline, method)
    events = [Event(one.name, one.impact, one.high_from) for one in counters]
    verdicts, pairs = rules.judge([*causes, *events], drawn, method)
    return Ranking(
        causes=tuple(ruled(cause, verdicts[cause.name], shares) for cause in found),
        shares=shares,
        counters=tuple(one.ruled(verdicts[one.name]) for one in counters),
        frequency=frequency,
        pairs=pairs,
        together=tuple(together),
        remedies=remedies,
        composition=composition,
    )


def ordered(found: list[Cause], baseline: Baseline, base: Base) -> list[Cause]:
    """The most valuable first.

    One fault can strike some spans by one cause and the rest by another, as a neighbour does that
    preempts a thread or keeps it on the run queue. Then each cause alone saves next to nothing, and
    their order by it would be chance. What they are of the tail tells them apart.
    """
    excess = baseline.target.ns - lower_edge(baseline.whole.bin_at(0.5))
    most = max((cause.saving.ns for cause in found), default=0.0)
    if base.is_median and most < ALONE * excess:
        return sorted(found, key=lambda cause: cause.share or 0.0, reverse=True)
    return sorted(found, key=lambda cause: (cause.saving.ns, cause.share or 0.0), reverse=True)


def start(spans: Spans, target: Target, seed: int) -> Baseline:
    """The target percentile as it is, with the draws that all intervals share."""
    walls = Timed.of(measure.walls(spans), spans.blocks)
    tail_bin = walls.distribution().bin_at(target.quantile)
    memory = bootstrap.memory(bootstrap.surplus(walls, tail_bin))
    return Baseline.of(walls, target, bootstrap.draw(spans.blocks, memory, seed))


def strike_all(
    spans: Spans, baseline: Baseline, target: Target, method: VarMRI, rows: Sample, base: Base
) -> tuple[dict[str, Strike], Composition, list[str]]:
    """Each cause's strikes, `running` last, what spans are made of, and what `running` rests on."""
    composition = Composition.of(spans, baseline.whole, target, spans.active)
    struck = {}
    for name in spans.active:
        found = struck[name] = strike(spans, baseline, name, method, rows, base)
        if found.baseline is not baseline:
            composition = composition.scaled_up(name, found.baseline.whole)
    rest_known = judges(spans, composition, target)
    penalties = [one.penalty for one in struck.values() if one.penalty]
    composition = with_interrupts(spans, composition, penalties)
    struck[RUNNING] = strike(spans, baseline, RUNNING, method, rows, base, rest_known, penalties)
    return struck, composition.with_rest(), rest_known


def with_interrupts(
    spans: Spans, composition: Composition, penalties: Sequence[Penalty]
) -> Composition:
    """The composition, in which what interrupts cost outside their handlers is theirs."""
    storms = [one for one in penalties if isinstance(one, InterruptPenalty)]
    if storms:
        edges = lower_edge(np.array(composition.edges)).tolist()
        sums = measure.class_sums(spans, edges, (), storms)
        for one in storms:
            more = composition.causes[one.cause] + sums[f"penalty_{one.cause}"]
            composition = composition.with_sums(one.cause, more)
    return composition


def judges(spans: Spans, composition: Composition, target: Target) -> list[str]:
    """The causes that must be known where `running` is judged.

    What was not measured is left in `running`, so each cause that some rows lack should be known.
    Where many take turns, hardly a row knows them all: then those that take most of the tail, as
    many as leave enough rows.
    """
    partial = [name for name in spans.active if name in spans.partial]
    if not partial:
        return []
    partial.sort(key=lambda name: composition.means(composition.causes[name])[0], reverse=True)
    rows = measure.known_rows(spans, partial)
    count = 1
    while count < len(partial) and (
        rows[count] == rows[count - 1] or rows[count] * target.beyond >= ENOUGH
    ):
        count += 1
    return partial[:count]


def held_against(
    name: str, found: Strike, composition: Composition, base: Base
) -> tuple[float, float]:
    """A cause's mean in the spans that are explained, and in those that they are compared with."""
    tail, band = composition.means(composition.causes[name])
    if name == RUNNING:
        # By class, for where causes were measured in some rows, single blocks may lack them.
        tail, band = rest(composition)
    return tail, band if base.is_median else base.mean(name, found.base_ns)


def rest(composition: Composition) -> tuple[float, float]:
    """What the causes' means leave of the wall time's, in both sets of spans."""
    tail, band = composition.means(composition.wall)
    for name, sums in composition.causes.items():
        if name != RUNNING:
            less = composition.means(sums)
            tail, band = tail - less[0], band - less[1]
    return max(tail, 0.0), max(band, 0.0)


def row(name: str, found: Strike, means: tuple[float, float], share: float | None) -> Cause:
    """One cause's row in the table, before the rules and the fair shares."""
    tail, band = means
    known = found.baseline.known_share
    events = found.found.events
    return Cause(
        name=name,
        meaning=MEANING[name],
        share=share,
        tail_mean_ns=tail,
        median_mean_ns=band,
        median_ns=found.median_ns,
        base_ns=found.base_ns,
        predicted=found.without.predicted,
        saving=found.without.saving,
        cold_ns=found.without.cold_ns,
        perhaps_ns=found.without.perhaps_ns,
        fair_ns=None,
        impact=found.impact,
        high_from_ns=found.high_ns,
        high_share=found.high_share,
        ranked_impact=found.impact,
        follows=None,
        measured_share=known,
        spans=found.found.spans / known,
        spans_share=found.found.spans / found.baseline.whole.total,
        events=events / known if events is not None else None,
    )


def ruled(cause: Cause, verdict: Verdict, shares: Shares | None) -> Cause:
    """A cause with what needs the other causes: the rules, and its fair share."""
    fair = shares.shares.get(cause.name) if shares else None
    return replace(cause, ranked_impact=verdict.impact, follows=verdict.follows, fair_ns=fair)


def worth_sharing(found: list[Cause]) -> list[str]:
    """The causes in the order in which they get fair shares, `running` among them."""
    weight = {
        cause.name: max(cause.saving.ns, cause.tail_mean_ns - cause.median_mean_ns)
        for cause in found
    }
    names = [name for name, ns in weight.items() if ns > 0]
    return sorted(names, key=lambda name: weight[name], reverse=True)


def worth_fixing(found: list[Cause]) -> list[str]:
    """The causes to fix together: the largest parts of the tail's excess, running apart."""
    candidates = [c for c in found if c.name != RUNNING and (c.share or 0.0) >= 0.02]
    candidates.sort(key=lambda cause: cause.share or 0.0, reverse=True)
    return [cause.name for cause in candidates[:TOGETHER]]


def flat(item: DataclassInstance) -> dict[str, Any]:
    """A dataclass with its intervals laid out as `saving_ns`, `saving_lo_ns`, `saving_hi_ns`."""
    found: dict[str, Any] = {}
    for name, value in asdict(item).items():
        if name in ("predicted", "saving", "again"):
            found |= {
                f"{name}_ns": value["ns"],
                f"{name}_lo_ns": value["lo"],
                f"{name}_hi_ns": value["hi"],
            }
        else:
            found[name] = value
    return found
