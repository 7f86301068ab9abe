"""One cause's strikes: how often and how hard, whom, and what these spans would be without them.

The cause's own distribution takes one pass over all rows. Who has much of it and what fixing it
would do is asked of the tail alone, and of all rows only where the answer lies below the tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tailscope.engines import measure
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.measure import Strikes
from tailscope.engines.penalty import Penalty
from tailscope.engines.sample import Sample
from tailscope.engines.spans import Spans
from tailscope.engines.value_counts import Ranked
from tailscope.statistics import counterfactual
from tailscope.statistics.base import Base
from tailscope.statistics.cache_penalty import cache_penalty, possible_penalty
from tailscope.statistics.counterfactual import Baseline, Counterfactual
from tailscope.statistics.fix import Fix
from tailscope.statistics.impact import impact
from tailscope.statistics.interrupt_penalty import interrupt_penalty
from tailscope.statistics.threshold import high_from
from tailscope.statistics.varmri import VarMRI


@dataclass(frozen=True)
class Strike:
    """A cause's distribution, its median, who has much of it, and the percentile without it.

    All of it is over the spans in which the cause was measured; `baseline` is theirs.
    """

    baseline: Baseline
    found: Strikes
    median_ns: int
    #: What a fix brings the cause down to.
    base_ns: int
    #: From how many ns on a span has much of it; None if no span has more than another.
    high_ns: int | None
    #: VarMRI's impact value; None if no span has much of the cause, or every one.
    impact: float | None
    #: The part of the spans (0 to 1) that the impact value leaves out.
    high_share: float
    without: Counterfactual
    #: What it does to the running of the spans that it strikes; None if nothing that can be told.
    penalty: Penalty | None
    #: The most that this may be, where it is not known; None: nothing.
    perhaps: Penalty | None
    #: Up to how much of it is usual (ns); None where most spans have none of it.
    usual_ns: int | None


def strike(
    spans: Spans,
    baseline: Baseline,
    cause: str,
    method: VarMRI,
    rows: Sample,
    base: Base,
    known: Sequence[str] = (),
    stays: Sequence[Penalty] = (),
) -> Strike:
    """Measure one cause, in the spans in which it and those in `known` were measured.

    `rows` are some of all spans, `base` says what is usual. For `running`, `stays` are the
    penalties of other causes.
    """
    spans, baseline = counterfactual.among(spans, baseline, (cause, *known)) or (spans, baseline)
    found = measure.strikes(spans, cause, baseline.whole.total)
    base_ns = base.limit(cause, found)
    high_ns, value = much(spans, baseline, found, cause, method)
    without, penalty, perhaps = counterfactual.unchanged(baseline), None, None
    if found.values.bins[-1] > bins_of(base_ns):
        penalty = cache_penalty(rows, cause, base_ns, baseline.draws)
        penalty = penalty or interrupt_penalty(rows, cause, base_ns, baseline.draws, base.calm)
        perhaps = possible_penalty(rows, cause, base_ns, baseline.draws)
        goes, may_go = (penalty,) if penalty else (), (perhaps,) if perhaps else ()
        fix = Fix({cause: base_ns}, goes, tuple(stays), may_go)
        without = counterfactual.without(spans, baseline, fix)
    return Strike(
        baseline,
        found,
        int(found.values.value_at(0.5)),
        base_ns,
        high_ns,
        value,
        found.ranked.share_from(high_ns) if high_ns is not None else 0.0,
        without,
        penalty,
        perhaps,
        base.usual(found),
    )


def much(
    spans: Spans, baseline: Baseline, found: Strikes, cause: str, method: VarMRI
) -> tuple[int | None, float | None]:
    """From which value on a span has much of a cause or counter, and the impact of those spans."""
    least = high_from(found.ranked, baseline.asked.exact, method)
    if least is None:
        return None, None
    for rows in counterfactual.slow_first(spans):
        high = measure.walls_from(rows, cause, least)
        high = with_faster(high, found.ranked, least, baseline.whole, rows.floor_bin)
        rest = baseline.whole.merge(high, sign=-1.0)
        if not len(rest.bins) or rest.bin_at(baseline.quantile) >= rows.floor_bin:
            break
    if not high.total > 0:
        return least, None
    return least, impact(baseline.whole, high, baseline.quantile)


def with_faster(
    high: Distribution, values: Ranked, least: int, whole: Distribution, floor_bin: int
) -> Distribution:
    """The wall times of all spans with much of a cause, from those that are in the tail.

    How many of them are faster is known from the cause's own distribution. Where they lie does not
    matter to a percentile in the tail: they are spread like all spans below it.
    """
    below = Distribution.of(whole.bins, np.where(whole.bins < floor_bin, whole.weights, 0.0))
    all_high = float(values.weights[values.values >= least].sum())
    missing = all_high - high.total
    if not below.total or missing <= 1e-9 * all_high:
        return high
    return high.merge(Distribution(below.bins, below.weights * (missing / below.total)))
