"""What the target percentile would have been with a cause fixed (DESIGN §5.3).

Each span's time of the cause above a base is taken away and the percentile is computed again. Above
the median the base is the cause's own median, not zero: a fix brings a cause to what is usual, and
for most causes the usual is 0 anyway. For other percentiles see `base`.
The prediction assumes that the spans' other causes stay as they are, but for the queue that built
up behind the cause, which goes with it where that can be replayed (`replay`), and for running that
the cause left longer (its cache penalty).

A cause that was not measured in all rows (a counter that takes turns, a ledger that lacks it) is
judged by those in which it was: the part of the percentile that fixing it saves there is the part
that it saves.

What lies beneath the causes that are fixed has a memory of its own: bursts of a cause may be short,
and what the machine does to all spans may last for seconds. So an interval is drawn in runs as long
as the longer one of both memories.

A fix only makes spans faster. So of the spans that were below some wall time only their number
matters, as long as the percentile and all of its replicates stay above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tailscope.engines import measure
from tailscope.engines.grid import Distribution, lower_edge
from tailscope.engines.spans import Spans
from tailscope.engines.timed import Timed
from tailscope.quantity import Interval
from tailscope.statistics.bootstrap import Draws, again, interval, interval_of, redrawn
from tailscope.statistics.fix import Fix, Remedies
from tailscope.statistics.fixed_walls import fixed
from tailscope.statistics.target import Target


@dataclass(frozen=True)
class Baseline:
    """The percentile as it was, with what is needed to compare against it."""

    walls: Timed
    whole: Distribution
    asked: Target
    draws: Draws
    target: Interval
    replicates: np.ndarray
    #: Where these are only the spans in which some causes were measured: the baseline of all.
    of_all: Baseline | None = None

    @classmethod
    def of(
        cls, walls: Timed, asked: Target, draws: Draws, of_all: Baseline | None = None
    ) -> Baseline:
        """The target percentile and its replicates."""
        target, replicates = interval_of(walls, draws, asked.quantile)
        return cls(walls, walls.distribution(), asked, draws, target, replicates, of_all)

    @property
    def quantile(self) -> float:
        """Which percentile it is, 0 to 1."""
        return self.asked.quantile

    def drawn(self, draws: Draws) -> Baseline:
        """The same with other draws."""
        if draws is self.draws:
            return self
        target, replicates = interval_of(self.walls, draws, self.quantile)
        of_all = self.of_all and self.of_all.drawn(draws)
        return replace(self, draws=draws, target=target, replicates=replicates, of_all=of_all)

    @property
    def everything(self) -> Baseline:
        """The baseline of all spans."""
        return self.of_all or self

    @property
    def known_share(self) -> float:
        """The share of all spans (0 to 1) that these are."""
        return self.whole.total / self.everything.whole.total


@dataclass(frozen=True)
class Counterfactual:
    """The percentile predicted without one or several causes, and what that saves."""

    predicted: Interval
    saving: Interval
    #: Where the percentile would lie in another recording, as long as this one.
    again: Interval
    #: The lowest percentile (ns) of all replicates: how deep the spans matter.
    lowest_ns: float
    #: The part of the saving that is the cache penalty of the causes.
    cold_ns: float = 0.0
    #: How much more it saves if all running goes that may be their penalty. The intervals hold
    #: both.
    perhaps_ns: float = 0.0
    #: How much less it saves if spans keep what is usual of some causes, and of which. The
    #: intervals hold both. None: that was not computed.
    usual_ns: float | None = None
    usual_of: tuple[str, ...] = ()

    def down_to(self, least: Counterfactual | None, of: tuple[str, ...]) -> Counterfactual:
        """The same, with intervals that reach as far as those of what is saved at least: if spans
        keep what is usual of these causes."""
        if least is None:
            return replace(self, usual_ns=0.0)
        return replace(
            self,
            predicted=replace(self.predicted, hi=max(self.predicted.hi, least.predicted.hi)),
            saving=replace(self.saving, lo=min(self.saving.lo, least.saving.lo)),
            again=replace(self.again, hi=max(self.again.hi, least.again.hi)),
            usual_ns=max(least.predicted.ns - self.predicted.ns, 0.0),
            usual_of=of,
        )

    def up_to(self, most: Counterfactual) -> Counterfactual:
        """The same, with intervals that reach as far as those of what is saved at most."""
        perhaps_ns = max(self.predicted.ns - most.predicted.ns, 0.0)
        saving_hi = max(self.saving.hi, most.saving.hi)
        return replace(
            self,
            predicted=replace(self.predicted, lo=min(self.predicted.lo, most.predicted.lo)),
            saving=replace(self.saving, hi=saving_hi),
            again=replace(self.again, lo=min(self.again.lo, most.again.lo)),
            lowest_ns=min(self.lowest_ns, most.lowest_ns),
            perhaps_ns=perhaps_ns,
        )


def among(spans: Spans, baseline: Baseline, causes: Sequence[str]) -> tuple[Spans, Baseline] | None:
    """The spans in which all of some causes were measured, with their baseline; None if none."""
    known = spans.knowing(causes)
    if known is spans:
        return spans, baseline
    counts = measure.walls(known)
    if not len(counts.bin):
        return None
    walls = Timed.of(counts, spans.blocks)
    return known, Baseline.of(walls, baseline.asked, baseline.draws, of_all=baseline)


def unchanged(baseline: Baseline) -> Counterfactual:
    """For a cause that no span has more of than its base."""
    whole = baseline.everything
    nothing = Interval(0.0, 0.0, 0.0)
    same = again(whole.target.ns, whole.replicates, whole.draws)
    return Counterfactual(whole.target, nothing, same, float(whole.replicates.min()))


def compare(baseline: Baseline, ns: float, replicates: np.ndarray) -> Counterfactual:
    """The percentile that would have been, against the one that was."""
    lowest_ns = min(ns, float(replicates.min()))
    whole = baseline.everything
    # Both percentiles come from the same draws, so what the draw itself does to both cancels. Where
    # these are some of the spans, their percentile errs with their luck, by as much as a fix saves;
    # what part of it is left errs little (ratio estimator: Cochran, Sampling Techniques, ch. 6).
    ns *= whole.target.ns / max(baseline.target.ns, 1.0)
    replicates = replicates * (whole.replicates / np.maximum(baseline.replicates, 1.0))
    # A fix makes no span slower, whatever the luck of the spans that it is judged by.
    ns, replicates = min(ns, whole.target.ns), np.minimum(replicates, whole.replicates)
    saving = interval(whole.target.ns - ns, whole.replicates - replicates, baseline.draws)
    predicted = interval(ns, replicates, baseline.draws)
    next_time = again(ns, replicates, baseline.draws)
    return Counterfactual(predicted, saving, next_time, lowest_ns)


def slow_first(spans: Spans) -> Iterator[Spans]:
    """Where to ask what a percentile becomes: the tail, then, if it leaves that, all spans."""
    if spans.tail is not None:
        yield spans.tail
    yield spans


def percentile(spans: Spans, baseline: Baseline, fix: Fix) -> tuple[float, np.ndarray, Draws]:
    """The percentile (ns) with a fix, its replicates, and the draws that these are of."""
    for rows in slow_first(spans):
        walls = fixed(rows, baseline.walls, fix)
        draws = redrawn(baseline.draws, walls, baseline.quantile)
        found, replicates = interval_of(walls, draws, baseline.quantile)
        if min(found.ns, float(replicates.min())) >= lower_edge(rows.floor_bin):
            break
    return found.ns, replicates, draws


def without(spans: Spans, baseline: Baseline, fix: Fix) -> Counterfactual:
    """The percentile with a fix."""
    found, ns = predicted(spans, baseline, fix)
    if fix.penalties:
        bare_ns, _, _ = percentile(spans, baseline, fix.bare)
        found = replace(found, cold_ns=bare_ns - ns)
    if fix.perhaps:
        most, _ = predicted(spans, baseline, fix.at_most)
        found = found.up_to(most)
    return found


def predicted(spans: Spans, baseline: Baseline, fix: Fix) -> tuple[Counterfactual, float]:
    """What a fix does, and the percentile (ns) of these spans with it."""
    ns, replicates, draws = percentile(spans, baseline, fix)
    baseline = baseline.drawn(draws)
    if penalties := (*fix.penalties, *fix.whole):
        # What struck spans are brought to is an estimate itself: its error comes on top of their
        # luck.
        luck = np.random.default_rng(len(replicates)).standard_normal(len(replicates))
        replicates = replicates * np.exp(max(one.error for one in penalties) * luck)
    return compare(baseline, ns, replicates), ns


def curve(spans: Spans, baseline: Baseline, fix: Fix) -> Distribution:
    """All wall times with a fix."""
    known, base = among(spans, baseline, tuple(fix.limits)) or (spans, baseline)
    return fixed(known, base.walls, fix).distribution()


def at_once(
    all_spans: Spans,
    whole: Baseline,
    remedies: Remedies,
    causes: Sequence[str],
    usual: Mapping[str, int] | None = None,
) -> Counterfactual:
    """The percentile with all of some causes fixed; those that no span met change nothing.

    Of those in `usual`, spans keep up to so much (ns).
    """
    met = [cause for cause in causes if cause in remedies.medians]
    measured = among(all_spans, whole, met) if met else None
    if measured is None:
        return unchanged(whole)
    spans, baseline = measured
    return without(spans, baseline, remedies.fix(met, usual))


def together(
    all_spans: Spans, whole: Baseline, remedies: Remedies, order: Sequence[str]
) -> list[tuple[tuple[str, ...], Counterfactual]]:
    """The first two, three, … causes of `order` fixed at once."""
    found = []
    for count in range(2, len(order) + 1):
        causes = tuple(order[:count])
        if among(all_spans, whole, causes) is None:
            break
        found.append((causes, at_once(all_spans, whole, remedies, causes)))
    return found
