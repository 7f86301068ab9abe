"""Intervals by resampling time: a circular block bootstrap over the recording's equal-time blocks.

Slow spans come in bursts, so one span says something about the next, and an interval that resamples
spans one by one is far too narrow. Here whole blocks of time are drawn, in runs of neighbours as
long as the tail's own memory: the run length is Politis and White's (2004, corrected 2009) estimate
for the circular bootstrap, taken from the series of each block's surplus of tail spans.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.grid import middle
from tailscope.engines.timed import Timed
from tailscope.quantity import Interval

REPLICATES = 1000
CONFIDENCE = 0.95
#: Neighbouring bins that are summed before they are looked into: about the root of their number.
GROUP = 64

#: The tail's memory is estimated from few bursts and usually too short. Three times the estimate
#: costs little where there is no memory; for bursts of 3 s in 300 s it brought the coverage from 88
#: to 93 of 100 (`bench/explain_coverage.py`).
CAUTION = 3
#: At least so many runs must be left to draw from.
FEWEST_RUNS = 8


@dataclass(frozen=True)
class Draws:
    """How often each replicate (row) holds each block (column), and how long the drawn runs are."""

    counts: NDArray[np.float64]
    run: int
    #: Whether the tail's memory is so long that too few runs are left for an honest interval.
    too_few: bool
    seed: int

    @property
    def widening(self) -> float:
        """By what factor an interval from so few runs must be wider than its replicates say.

        Resampling n runs understates their variance by (n-1)/n, and uses the normal distribution
        where Student's is right; the second factor is the leading term of their quantiles' ratio at
        97.5 %.
        """
        runs = max(self.counts.shape[1] / self.run, 2.0)
        return math.sqrt(runs / (runs - 1)) * (1 + 1.21 / (runs - 1))

    @property
    def rest(self) -> float:
        """The part of the replicates (0 to 1) that lies outside of a 95 % interval, on each side.

        Less than 2.5 % for few runs: the interval is widened by going further out among the
        replicates (Hesterberg's expanded percentile interval, 2015). So it ends where the data can
        be: no latency is below 0, and no p99 below each replicate's own median.
        """
        deviations = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * self.widening
        return NormalDist().cdf(-deviations)


def surplus(timed: Timed, tail_bin: int) -> NDArray[np.float64]:
    """How many tail spans each block has beyond its share: what the percentile depends on."""
    in_tail = timed.weight[:, max(tail_bin - timed.first, 0) :].sum(axis=1)
    everything = timed.weight.sum(axis=1)
    return in_tail - in_tail.sum() / max(everything.sum(), 1e-300) * everything


def memory(series: NDArray[np.float64]) -> int:
    """How many neighbouring blocks hang together (Politis and White's block length)."""
    count = len(series)
    centred = series - series.mean()
    variance = float(centred @ centred) / max(count, 1)
    if count < 8 or variance <= 0:
        return 1
    longest = min(count // 3, math.ceil(2 * math.sqrt(count)) + 10)
    covariance = np.array([centred[: count - k] @ centred[k:] / count for k in range(longest + 1)])
    correlation = covariance / variance
    quiet = 2 * math.sqrt(math.log10(count) / count)
    patience = max(5, math.ceil(math.sqrt(math.log10(count))))
    reach = longest
    for lag in range(longest - patience):
        if np.all(np.abs(correlation[lag + 1 : lag + 1 + patience]) < quiet):
            reach = lag
            break
    width = min(max(2 * reach, 1), longest)
    lags = np.arange(1, width + 1)
    taper = np.where(lags / width <= 0.5, 1.0, 2 * (1 - lags / width))
    slope = 2 * float(np.sum(taper * lags * covariance[1 : width + 1]))
    spectrum = variance + 2 * float(np.sum(taper * covariance[1 : width + 1]))
    if reach == 0 or spectrum <= 0:
        return 1
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    return max(1, math.ceil(best))


def draw(blocks: int, memory: int, seed: int, replicates: int = REPLICATES) -> Draws:
    """Draw blocks in runs of neighbours, the last followed by the first, for a tail's memory."""
    run = run_length(blocks, memory)
    rng = np.random.default_rng(seed)
    starts = rng.multinomial(max(1, round(blocks / run)), np.full(blocks, 1 / blocks), replicates)
    counts = np.zeros((replicates, blocks))
    for step in range(run):
        counts += np.roll(starts, step, axis=1)
    return Draws(counts, run, blocks < 20 or run < CAUTION * memory, seed)


def run_length(blocks: int, memory: int) -> int:
    """How many neighbours are drawn together, for a tail's memory."""
    return min(CAUTION * memory, max(1, blocks // FEWEST_RUNS))


def redrawn(draws: Draws, timed: Timed, quantile: float) -> Draws:
    """Draws in longer runs, if that is what another percentile takes; else the same."""
    tail_bin = timed.distribution().bin_at(quantile)
    blocks, found = timed.blocks, memory(surplus(timed, tail_bin))
    longer = run_length(blocks, found) > draws.run
    return draw(blocks, found, draws.seed, len(draws.counts)) if longer else draws


def quantiles(draws: NDArray[np.float64], timed: Timed, quantile: float) -> NDArray[np.float64]:
    """The quantile (ns) of each replicate.

    In two steps, for a replicate needs its counts only near its quantile: first the group of bins,
    by the groups' sums, then the bin inside. The result is that of cumulating all bins.
    """
    matrix = np.pad(timed.weight, ((0, 0), (0, -timed.weight.shape[1] % GROUP)))
    matrix = matrix.reshape(len(matrix), -1, GROUP)
    groups = np.cumsum(draws @ matrix.sum(axis=2), axis=1)
    goal = quantile * groups[:, -1] * (1 - 1e-12)
    group = np.minimum((groups < goal[:, None]).sum(axis=1), groups.shape[1] - 1)
    before = np.where(group > 0, groups[np.arange(len(draws)), group - 1], 0.0)
    chosen = np.empty(len(draws), dtype=np.int64)
    for number in np.unique(group):
        rows = group == number
        inside = np.cumsum(draws[rows] @ matrix[:, number], axis=1) + before[rows, None]
        within = np.minimum((inside < goal[rows, None]).sum(axis=1), GROUP - 1)
        chosen[rows] = number * GROUP + within
    return middle(timed.first + chosen)


def interval(estimate: float, replicates: NDArray[np.float64], draws: Draws) -> Interval:
    """The middle 95 % of the replicates, or more of them where they rest on few runs."""
    lo, hi = np.quantile(replicates, [draws.rest, 1 - draws.rest])
    return Interval(estimate, min(estimate, float(lo)), max(estimate, float(hi)))


def bounded(found: Interval, least: float, most: float) -> Interval:
    """An interval (ns) cut at what its figure can be."""
    ns, lo, hi = (min(max(value, least), most) for value in (found.ns, found.lo, found.hi))
    return Interval(ns, lo, hi)


def again(estimate: float, replicates: NDArray[np.float64], draws: Draws) -> Interval:
    """Where the same percentile of another recording, as long as this one, lies with 95 %.

    The interval of the estimate holds the true value; what comes out next time has its own luck
    beside that, and lies outside of it one time in six. Taken from the ratios of two replicates:
    percentiles of long tails err by factors, and none falls below 0.
    """
    logs = np.log(np.maximum(replicates, 1.0))
    # Replicates are drawn one by one, so any other stands for the luck of the next recording.
    apart = np.abs(logs - np.roll(logs, len(logs) // 2))
    factor = math.exp(draws.widening * float(np.quantile(apart, CONFIDENCE)))
    return Interval(estimate, estimate / factor, estimate * factor)


def interval_of(timed: Timed, draws: Draws, quantile: float) -> tuple[Interval, NDArray]:
    """A quantile with its interval, and the replicates for differences.

    A percentile above the median is at least the median, and one below it at most.
    """
    whole = timed.distribution()
    estimate, median = whole.value_at(quantile), whole.value_at(0.5)
    replicates = quantiles(draws.counts, timed, quantile)
    least, most = (median, math.inf) if quantile >= 0.5 else (0.0, median)
    return bounded(interval(estimate, replicates, draws), least, most), replicates
