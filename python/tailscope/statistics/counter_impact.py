"""Hardware counters of a set of spans: their impact values, their typical values, the frequency.

The frequency is no column. A span's running time over its cycles is the length of a cycle, which is
long where the clock is slow, so it is weighed as a counter like the others (VarMRI's 1/frequency).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailscope.engines import measure
from tailscope.engines.grid import Distribution, bins_of
from tailscope.engines.sample import Sample
from tailscope.engines.spans import Spans
from tailscope.engines.value_counts import Ranked
from tailscope.ledger.causes import RUNNING
from tailscope.ledger.counters import CYCLE_TIME, CYCLES, KERNEL_CYCLES, group_of
from tailscope.statistics import counterfactual
from tailscope.statistics.contribution import half_width
from tailscope.statistics.counterfactual import Baseline
from tailscope.statistics.impact import impact
from tailscope.statistics.rules import Verdict
from tailscope.statistics.strike import much
from tailscope.statistics.threshold import high_from
from tailscope.statistics.varmri import VarMRI


@dataclass(frozen=True)
class CounterImpact:
    """A hardware counter's impact value, and what the rules leave of it."""

    name: str
    group: str
    impact: float | None
    high_from: int | None
    ranked_impact: float | None
    cut_by: str | None
    follows: str | None
    #: The part of the rows (0 to 1, weighted) in which it was measured.
    measured_share: float
    #: The part of these spans (0 to 1) that the impact value leaves out.
    high_share: float
    #: Its mean over the spans around the target, and over those around the median; None where none
    #: of them has it.
    target_mean: float | None
    median_mean: float | None

    def ruled(self, verdict: Verdict) -> CounterImpact:
        """With what the rules leave."""
        return replace(
            self,
            ranked_impact=verdict.impact,
            cut_by=verdict.cut_by,
            follows=verdict.follows,
        )


@dataclass(frozen=True)
class Frequency:
    """The average clock frequency (GHz) of the spans around the target and around the median.

    Cycles over running time. Where a recording counts cycles in user space only, time in the kernel
    is without cycles and the figure is that much too low.
    """

    target_ghz: float | None
    median_ghz: float | None
    #: Whether the kernel's cycles are in it.
    with_kernel: bool


def count_events(
    spans: Spans, baseline: Baseline, rows: Sample, method: VarMRI
) -> list[CounterImpact]:
    """The hardware counters, before the rules; `rows` are some of the spans."""
    found = []
    for name in spans.counters:
        measured = counterfactual.among(spans, baseline, (name,))
        if measured is None:
            continue
        known, base = measured
        strikes = measure.strikes(known, name, base.whole.total)
        least, value = much(known, base, strikes, name, method)
        left_out = strikes.ranked.share_from(least) if least is not None else 0.0
        found.append(line(name, value, least, left_out, base.known_share, rows, baseline))
    return found


def line(
    name: str,
    value: float | None,
    least: int | None,
    left_out: float,
    known_share: float,
    rows: Sample,
    baseline: Baseline,
) -> CounterImpact:
    """One counter before the rules."""
    return CounterImpact(
        name=name,
        group=group.name if (group := group_of(name)) else "OTHER",
        impact=value,
        high_from=least,
        ranked_impact=value,
        cut_by=None,
        follows=None,
        measured_share=known_share,
        high_share=left_out,
        target_mean=mean(name, rows, around(rows, baseline, baseline.quantile)),
        median_mean=mean(name, rows, around(rows, baseline, 0.5)),
    )


def around(rows: Sample, baseline: Baseline, quantile: float) -> NDArray[np.bool_]:
    """The rows of the spans around a percentile."""
    half, whole = half_width(quantile), baseline.everything.whole
    bins = bins_of(rows.wall)
    return (bins >= whole.bin_at(quantile - half)) & (bins <= whole.bin_at(quantile + half))


def mean(name: str, rows: Sample, chosen: NDArray[np.bool_]) -> float | None:
    """A counter's mean over some rows; None if it was measured in none of them."""
    chosen = chosen & rows.where_known((name,))
    weight = rows.weight[chosen]
    if not weight.sum() > 0:
        return None
    return float(weight @ rows.values[name][chosen]) / float(weight.sum())


def cycles(rows: Sample) -> tuple[NDArray[np.int64], NDArray[np.bool_], bool] | None:
    """The rows' cycles, in which rows they are known, and whether the kernel's are among them."""
    name = next((name for name in CYCLES if name in rows.values), None)
    if name is None:
        return None
    if name in KERNEL_CYCLES and KERNEL_CYCLES[name] in rows.values:
        both = (name, KERNEL_CYCLES[name])
        known = rows.where_known(both)
        if known.any():
            return sum((rows.values[one] for one in both), np.int64(0)), known, True
    return rows.values[name], rows.where_known((name,)), False


def with_cycle_time(
    found: list[CounterImpact], rows: Sample, baseline: Baseline, method: VarMRI
) -> tuple[list[CounterImpact], Sample, Frequency | None]:
    """The counters and rows with the length of a cycle (ps) among them, and the frequency."""
    counted = cycles(rows)
    if counted is None:
        return found, rows, None
    number, known, with_kernel = counted
    running = rows.values[RUNNING]
    known = known & rows.where_known((RUNNING,)) & (number > 0) & (running > 0)
    if not known.any():
        return found, rows, None
    length = np.where(known, np.minimum(running, 1 << 50) * 1000 // np.maximum(number, 1), 0)
    rows = replace(
        rows,
        values=rows.values | {CYCLE_TIME: length},
        known=rows.known | {CYCLE_TIME: known},
    )
    weight = rows.weight[known]
    walls = Distribution.of(bins_of(rows.wall[known]), weight)
    values = Ranked.of(length[known], weight)
    least = high_from(values, baseline.asked.exact, method)
    value, left_out = None, 0.0
    if least is not None:
        high = length[known] >= least
        left_out = values.share_from(least)
        value = impact(walls, Distribution.of(bins_of(rows.wall[known][high]), weight[high]),
                       baseline.quantile)  # fmt: skip
    share = float(weight.sum() / rows.weight.sum())
    one = line(CYCLE_TIME, value, least, left_out, share, rows, baseline)

    def ghz(quantile: float) -> float | None:
        chosen = known & around(rows, baseline, quantile)
        weight = rows.weight[chosen]
        ran = float(weight @ running[chosen])
        return float(weight @ number[chosen]) / ran if ran > 0 else None

    return [*found, one], rows, Frequency(ghz(baseline.quantile), ghz(0.5), with_kernel)


def frequency_dict(found: Frequency | None) -> dict[str, Any] | None:
    """What `--json` prints of the frequency."""
    return asdict(found) if found else None
