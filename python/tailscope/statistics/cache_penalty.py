"""The cache penalty: the spans that an interruption struck also run longer.

While another thread or an interrupt has the CPU, it fills caches and TLB with its own, and neither
the kernel's way in and out nor a virtual machine's is inside what the kernel can time. Both stay in
`running`, and both are gone when the cause is. How much it is, spans that were not struck tell: had
it not been struck, a span would have run as they do. Rank by rank, the running of struck spans is
brought to that of the others: the longest to the longest, the median to the median.

That compares like with like only where being struck has nothing to do with what a span is about:

- Interrupts, and threads that take the CPU, strike at their own times. The longer a span runs the
  likelier it meets one, so struck spans are the longer ones to begin with (length bias), and to
  count that as the cause's doing would invent savings. At a rate λ a span that runs for r is struck
  with odds e^(λr) - 1: so many times each of the others counts, and λ is such that together they
  count as much as the struck ones. Strikes that come in bursts (λ is how often one begins, and 1-p
  the part of the time that they last) strike with odds e^(λr) / p - 1, in which the length matters
  far less. How far strikes are bursts, the order of the spans tells: struck ones follow each other,
  in fewer runs than the same number at random. λ is the random one's times that ratio of runs,
  which is too much rather than too little, as bursts also begin between spans.
- A span so long that it is nearly always struck has no others to be compared with. That it runs
  long says nothing of the strike: all requests of 30 ms meet a timer's tick. Such spans are left
  out of the comparison, and gain no more than the longest that were in it.
- A wait for the CPU before a span's work begins can't depend on that work. A wait after a block
  can: who blocks more often waits more often, and works more. Spans that blocked are left out.
- While an idle CPU wakes up, nobody has it. That wait is longer wherever the machine is slower, and
  so is everything else: it says nothing of caches, and is no strike.
- A quota that is used up in nearly every period strikes as regularly as a clock, whatever the span
  does that runs at that moment. One that is used up now and then may be so by the very spans that
  do most: that says nothing.
- Page faults, reclaim, locks and other blocks come from what a span does. Such spans may run longer
  because of them or because of what they do, and the rows don't show which. The penalty is between
  nothing and `possible_penalty`. A tracer's stops come from what a span does, too, and get nothing.
- What a span does that another thread answered than received is not known. Its `running` says
  nothing, so it is on neither side.

It is left alone unless the difference of means is above three standard errors, by the bootstrap
over blocks of time, which keeps bursts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.ledger.causes import RUNNING, RUNQUEUE
from tailscope.statistics.bootstrap import Draws

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    from tailscope.engines.penalty import Penalty
    from tailscope.engines.sample import Sample
    from tailscope.engines.spans import Spans

#: Causes that strike while a span runs, at times of their own.
ON_TOP = ("preempted", "irq", "softirq_net", "softirq_timer", "softirq_other")
#: The same, if its strikes keep time: their numbers in blocks of equal time vary far less than
#: numbers at random do, whose variance is their mean.
BY_CLOCK, REGULAR = "throttled", 0.5
#: The cause that strikes before a span's work begins, unless the span blocked.
BEFORE = RUNQUEUE
BLOCKED = ("lock", "io", "network", "sleep", "stopped", "reclaim")
#: Causes that come from what a span does. Each may leave behind as much time as it took.
OWN = ("fault", "reclaim", "lock", "io", "network", "sleep")
#: A span with this has no `running` of its own.
MOVED = "unknown"
#: Rows on each side, at least.
FEWEST = 100
#: How many standard errors the difference of means must be above 0.
SURE = 3.0
#: A span that is struck more often than this, by how long it runs, is compared with none.
ALWAYS = 0.8
#: Ranks at which the two sides are compared; between them it goes in straight lines.
RANKS = np.array([0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 1.0])
#: Slopes are in parts of 2^10, so that all engines compute with whole numbers.
FRACTION = 10


@dataclass(frozen=True)
class CachePenalty:
    """How long spans that a cause struck would have run without it."""

    cause: str
    #: A span has been struck if it has more of the cause (ns).
    above_ns: int
    #: From this much running (ns, rising) …
    runs: tuple[int, ...]
    #: … to this much (ns, not falling), at the same ranks.
    would: tuple[int, ...]
    #: The standard error of what struck spans are brought to, as a share of it.
    error: float
    #: Whether it is at most as long as what the span has of the cause above `above_ns`.
    is_bounded: bool = False

    def gain(self, spans: Spans) -> IntegerValue:
        """By how much (ns) a span would run shorter; 0 if it was not struck."""
        running = spans.value(RUNNING)
        branches = []
        for number, (runs, would) in enumerate(zip(self.runs, self.would, strict=True)):
            slope = 1 << FRACTION
            if number + 1 < len(self.runs):
                rise = self.would[number + 1] - would
                slope = (rise << FRACTION) // (self.runs[number + 1] - runs)
            expected = ((running - runs) * slope >> FRACTION) + would
            branches.append((running >= runs, running - expected))
        gained = ibis.greatest(ibis.cases(*reversed(branches), else_=0), 0)
        above = spans.value(self.cause) - self.above_ns
        if self.is_bounded:
            gained = ibis.least(gained, above)
        struck = above > 0
        if self.cause == BEFORE:
            struck = struck & ~spans.woke_idle
            for name in BLOCKED:
                if name in spans.active:
                    struck = struck & (spans.value(name) == 0)
        return ibis.ifelse(struck, gained, 0)

    def gain_in(self, rows: Sample) -> NDArray[np.int64]:
        """The same for rows in memory."""
        running = rows.values[RUNNING]
        compared = np.minimum(running, self.runs[-1])
        gained = np.maximum(compared - np.interp(compared, self.runs, self.would), 0)
        above = rows.values[self.cause] - self.above_ns
        if self.is_bounded:
            gained = np.minimum(gained, above)
        struck = (above > 0) & (running >= self.runs[0])
        if self.cause == BEFORE:
            struck &= ~blocked(rows) & ~woke_idle(rows)
        return np.where(struck, gained, 0).astype(np.int64)


def put_down(rows: Sample, penalties: Sequence[Penalty]) -> Sample:
    """The rows with the penalties taken from `running` and put down to their causes.

    To the cause with the largest one, where it is several.
    """
    if not penalties:
        return rows
    gains = np.array([one.gain_in(rows) for one in penalties])
    most = gains.argmax(axis=0)
    values = rows.values | {RUNNING: rows.values[RUNNING] - gains.max(axis=0)}
    for number, one in enumerate(penalties):
        values[one.cause] = values[one.cause] + np.where(most == number, gains[number], 0)
    return replace(rows, values=values)


def blocked(rows: Sample) -> NDArray[np.bool_]:
    """The rows of spans that blocked."""
    found = np.zeros(len(rows.wall), dtype=bool)
    for name in BLOCKED:
        found |= rows.values.get(name, np.zeros(1)) > 0
    return found


def woke_idle(rows: Sample) -> NDArray[np.bool_]:
    """The rows of spans that waited for an idle CPU to wake up."""
    return rows.woke_idle if len(rows.woke_idle) else np.zeros(len(rows.wall), dtype=bool)


def cache_penalty(rows: Sample, cause: str, above_ns: int, draws: Draws) -> CachePenalty | None:
    """The penalty in the spans that have more of a cause than so many ns; None: nothing."""
    if any(name in rows.known for name in rows.causes):
        # What was not measured in some rows is part of their running.
        return None
    running, weight = rows.values[RUNNING].astype(np.float64), rows.weight.copy()
    met = rows.values[cause] > above_ns
    if cause == BEFORE:
        met &= ~woke_idle(rows)
        fit = ~blocked(rows)
    elif above_ns == 0 and strikes_of_its_own(cause, rows.block[met], draws):
        fit = is_comparable(running, weight, met)
    else:
        return None
    if MOVED in rows.values:
        fit &= rows.values[MOVED] == 0
    if cause != BEFORE:
        weight[fit & ~met] *= odds(running[fit], weight[fit], met[fit], burstiness=rows.is_all)
    return compared(rows, cause, above_ns, weight, met & fit, ~met & fit, draws)


def possible_penalty(rows: Sample, cause: str, above_ns: int, draws: Draws) -> CachePenalty | None:
    """The largest penalty that a cause of `OWN` may have; None: it has none.

    It is the time by which spans with more of the cause run longer than the others, but at most
    their time of the cause. That assumes that fetching data again takes no longer than pushing it
    out of the caches did.
    """
    if cause not in OWN or any(name in rows.known for name in rows.causes):
        return None
    met, fit = rows.values[cause] > above_ns, rows.values[RUNNING] > 0
    if MOVED in rows.values:
        fit &= rows.values[MOVED] == 0
    found = compared(rows, cause, above_ns, rows.weight, met & fit, ~met & fit, draws)
    return found and replace(found, is_bounded=True)


def compared(
    rows: Sample,
    cause: str,
    above_ns: int,
    weight: NDArray[np.float64],
    struck: NDArray[np.bool_],
    free: NDArray[np.bool_],
    draws: Draws,
) -> CachePenalty | None:
    """Struck rows against the others, rank by rank; None if they do not run longer for sure."""
    if min(struck.sum(), free.sum()) < FEWEST:
        return None
    running = rows.values[RUNNING].astype(np.float64)
    longer = means(running, weight, struck, free, rows.block, draws)
    if longer.ns <= SURE * longer.error_ns:
        return None
    runs = ranked(running[struck], weight[struck])
    would = np.minimum(ranked(running[free], weight[free]), runs)
    rising = np.append(True, np.diff(runs) > 0)
    return CachePenalty(
        cause,
        above_ns,
        tuple(runs[rising].tolist()),
        tuple(np.maximum.accumulate(would)[rising].tolist()),
        longer.free_error,
    )


def strikes_of_its_own(cause: str, blocks: NDArray[np.int64], draws: Draws) -> bool:
    """Whether a cause strikes at times of its own, by the blocks of time in which it did."""
    if cause == BY_CLOCK:
        counts = np.bincount(blocks, minlength=draws.counts.shape[1])
        return bool(counts.var() < REGULAR * counts.mean())
    return cause in ON_TOP


def is_comparable(
    running: NDArray, weight: NDArray, struck: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which spans would not be struck nearly always, were strikes nothing but a matter of length.

    At one rate λ for all, the likeliest one (by maximum likelihood, where a span that runs for r is
    struck with 1 - e^(-λr)).
    """
    hit, hits = running[struck], weight[struck]
    missed = float(weight[~struck] @ running[~struck])
    if missed <= 0 or not hits.sum():
        return np.zeros(len(running), dtype=bool)
    # λ times the hits' expm1 is at least λr, so the likeliest λ is at most hits / missed.
    low, high = 0.0, float(hits.sum()) / missed
    for _ in range(60):
        rate = (low + high) / 2
        grown = np.expm1(np.clip(rate * hit, 1e-12, 50.0))
        low, high = (rate, high) if float(hits @ (hit / grown)) > missed else (low, rate)
    return -np.expm1(-high * running) <= ALWAYS


def odds(
    running: NDArray, weight: NDArray, struck: NDArray[np.bool_], *, burstiness: bool
) -> NDArray[np.float64]:
    """How many spans were struck for each that was not, by how long it runs.

    At one rate for all, which is such that as many are struck as really were. With `burstiness` the
    spans are all there are, in order of time, and tell whether strikes come in bursts.
    """
    free = running[~struck]
    others, target = weight[~struck], float(weight[struck].sum())
    length = float(others @ free)
    if length <= 0:
        return np.ones_like(free)
    low, high = 0.0, target / length
    for _ in range(60):
        rate = (low + high) / 2
        expected = float(others @ np.expm1(np.minimum(rate * free, 50.0)))
        low, high = (rate, high) if expected < target else (low, rate)
    rate = high * runs_ratio(running, struck, high) if burstiness else high
    grown = np.exp(np.minimum(rate * free, 50.0))
    calm = float(others @ grown) / (target + float(others.sum()))
    return np.maximum(grown / calm - 1, 0.0)


def runs_ratio(running: NDArray, struck: NDArray[np.bool_], rate: float) -> float:
    """How many runs of struck spans there are, to how many at a constant rate; 1 at most.

    By each span's length: where long spans follow each other, struck ones do so too.
    """
    chance = -np.expm1(-rate * running)
    expected = float(chance[:-1] @ (1 - chance[1:]))
    ends = int((struck[:-1] & ~struck[1:]).sum())
    return min(ends / expected, 1.0) if expected > 0 else 1.0


@dataclass(frozen=True)
class Longer:
    """By how much struck spans run longer on average, with the standard error of that (ns).

    And that of the others' mean, as a share of it.
    """

    ns: float
    error_ns: float
    free_error: float


def means(
    running: NDArray,
    weight: NDArray,
    struck: NDArray[np.bool_],
    free: NDArray[np.bool_],
    block: NDArray[np.int64],
    draws: Draws,
) -> Longer:
    """Compares the running of struck and other spans.

    What is above the 99th percentile of either side counts as that: a few very long spans say
    little about all others.
    """
    most = max(np.quantile(running[struck], 0.99), np.quantile(running[free], 0.99))
    capped = np.minimum(running, most)
    blocks = draws.counts.shape[1]
    sides, replicates = [], []
    for side in (struck, free):
        number = np.bincount(block[side], weight[side], blocks)
        total = np.bincount(block[side], weight[side] * capped[side], blocks)
        sides.append(total.sum() / number.sum())
        drawn = draws.counts @ number
        replicates.append((draws.counts @ total)[drawn > 0] / drawn[drawn > 0])
    if len(replicates[0]) != len(replicates[1]):
        # Some replicates have no strike at all: they come too seldom to tell.
        return Longer(0.0, 0.0, 0.0)
    error_ns = float(np.std(replicates[0] - replicates[1])) * draws.widening
    free_error = float(np.std(replicates[1])) * draws.widening / max(float(sides[1]), 1.0)
    return Longer(float(sides[0] - sides[1]), error_ns, free_error)


def ranked(running: NDArray, weight: NDArray) -> NDArray[np.int64]:
    """The running (ns) at each of the ranks."""
    order = np.argsort(running, kind="stable")
    share = np.cumsum(weight[order])
    place = np.searchsorted(share, RANKS * share[-1] * (1 - 1e-12))
    return running[order][np.minimum(place, len(order) - 1)].astype(np.int64)
