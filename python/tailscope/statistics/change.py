"""How the percentiles of two sets of spans differ, and which causes carry the difference.

Both sets are resampled on their own, so the interval of a difference holds the chance of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailscope.ledger.causes import CAUSES, MEANING, RUNNING
from tailscope.quantity import Interval
from tailscope.statistics.base import over
from tailscope.statistics.bootstrap import Draws, interval, interval_of
from tailscope.statistics.contribution import Contributions, Side, contributions
from tailscope.statistics.target import Target

#: Its causes are always compared: what strikes all spans alike is in no tail.
MEDIAN = Target(50)


@dataclass(frozen=True)
class PercentileChange:
    """One percentile on both sides; `relative` is of the first, a fraction."""

    name: str
    base: Interval
    new: Interval
    change: Interval
    relative: Interval | None
    #: Whether one side has too few rows for it: then it is that side's slowest span.
    too_few: bool

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves no doubt that it changed."""
        return self.change.lo > 0 or self.change.hi < 0


@dataclass(frozen=True)
class CauseChange:
    """A cause's contribution to the target on both sides; None where it was not measured."""

    name: str
    meaning: str
    base_ns: float | None
    new_ns: float | None
    change: Interval | None
    #: Its part (0 to 1) of the change: of all causes that changed the same way as the target. None
    #: where the target has not surely changed.
    carries: float | None


@dataclass(frozen=True)
class Change:
    """All that differs between two sets of spans of one name."""

    base_spans: float
    new_spans: float
    base_rows: int
    new_rows: int
    base_seconds: float
    new_seconds: float
    percentiles: tuple[PercentileChange, ...]
    target: PercentileChange
    #: The largest change first.
    causes: tuple[CauseChange, ...]
    #: The same of the median.
    median_causes: tuple[CauseChange, ...]


def change(base: Side, new: Side, target: Target, percentiles: Sequence[Target]) -> Change:
    """Compare two sides at some percentiles, and their causes at the target."""
    found = tuple(percentile_change(base, new, one) for one in percentiles)
    goal = percentile_change(base, new, target)
    causes = cause_changes(base, new, target, goal)
    median_causes = causes
    if target != MEDIAN:
        median_causes = cause_changes(base, new, MEDIAN, percentile_change(base, new, MEDIAN))
    return Change(
        base_spans=base.weight,
        new_spans=new.weight,
        base_rows=base.rows,
        new_rows=new.rows,
        base_seconds=base.seconds,
        new_seconds=new.seconds,
        percentiles=found,
        target=goal,
        causes=causes,
        median_causes=median_causes,
    )


def cause_changes(
    base: Side, new: Side, target: Target, goal: PercentileChange
) -> tuple[CauseChange, ...]:
    """What a percentile is made of on both sides, the largest change first."""
    parts = contributions(base, target.quantile), contributions(new, target.quantile)
    causes = [
        cause
        for name in (*CAUSES, RUNNING)
        if (cause := cause_change(name, base, new, parts)) is not None
    ]
    causes = carriers(causes, goal)
    causes.sort(key=lambda cause: abs(cause.change.ns) if cause.change else -1.0, reverse=True)
    return tuple(causes)


def wider(base: Draws, new: Draws) -> Draws:
    """The draws from fewer runs: their intervals need more widening."""
    return max(base, new, key=lambda draws: draws.widening)


def percentile_change(base: Side, new: Side, target: Target) -> PercentileChange:
    """One percentile's change with its interval."""
    before, before_draws = interval_of(base.walls, base.draws, target.quantile)
    after, after_draws = interval_of(new.walls, new.draws, target.quantile)
    draws = wider(base.draws, new.draws)
    relative = None
    if before.ns > 0 and np.all(before_draws > 0):
        relative = interval(after.ns / before.ns - 1, after_draws / before_draws - 1, draws)
    return PercentileChange(
        name=target.name,
        base=before,
        new=after,
        change=interval(after.ns - before.ns, after_draws - before_draws, draws),
        relative=relative,
        too_few=min(base.rows, new.rows) * target.beyond < 1,
    )


def cause_change(
    name: str,
    base: Side,
    new: Side,
    parts: tuple[Contributions, Contributions],
) -> CauseChange | None:
    """One cause's change; None where it is in no span of either side."""
    before, before_draws = contribution(name, base, parts[0])
    after, after_draws = contribution(name, new, parts[1])
    if not before and not after:
        return None
    changed = None
    if before is not None and after is not None:
        changed = interval(after - before, after_draws - before_draws, wider(base.draws, new.draws))
    return CauseChange(name, MEANING[name], before, after, changed, None)


def carriers(causes: Sequence[CauseChange], goal: PercentileChange) -> list[CauseChange]:
    """The causes with what part of the target's change each carries.

    A cause that changed the other way carries nothing of it, and the parts add up to 1: the plain
    quotients would be below 0 there, and above 1 for others.
    """
    if not goal.is_sure:
        return list(causes)
    way = 1 if goal.change.ns > 0 else -1
    known = [cause for cause in causes if cause.change]
    parts = over([(way * cause.change.ns, 0.0) for cause in known if cause.change])
    found = {cause.name: part for cause, part in zip(known, parts, strict=True)}
    return [replace(cause, carries=found.get(cause.name)) for cause in causes]


def contribution(
    name: str, side: Side, parts: Contributions
) -> tuple[float | None, NDArray[np.float64]]:
    """A cause's contribution on one side: None where it was not measured, 0 where never seen."""
    nothing = np.zeros(len(parts.wall_draws))
    if name in side.unknown:
        return None, nothing
    return parts.causes_ns.get(name, 0.0), parts.causes_draws.get(name, nothing)


def change_dict(found: Change) -> dict[str, Any]:
    """A change, its intervals laid out as `change_ns`, `change_lo_ns`, `change_hi_ns`."""
    plain = ("base_spans", "new_spans", "base_rows", "new_rows", "base_seconds", "new_seconds")
    return {
        **{name: getattr(found, name) for name in plain},
        "percentiles": [percentile_dict(one) for one in found.percentiles],
        "target": percentile_dict(found.target),
        "causes": [cause_dict(cause) for cause in found.causes],
        "median_causes": [cause_dict(cause) for cause in found.median_causes],
    }


def percentile_dict(one: PercentileChange) -> dict[str, Any]:
    """One percentile's change."""
    return {
        "percentile": one.name,
        **laid_out("base", one.base),
        **laid_out("new", one.new),
        **laid_out("change", one.change),
        "relative": one.relative.ns if one.relative else None,
        "relative_lo": one.relative.lo if one.relative else None,
        "relative_hi": one.relative.hi if one.relative else None,
        "too_few": one.too_few,
    }


def cause_dict(cause: CauseChange) -> dict[str, Any]:
    """One cause's change."""
    found = asdict(cause)
    del found["change"]
    return found | laid_out("change", cause.change)


def laid_out(name: str, interval: Interval | None) -> dict[str, float | None]:
    """An interval as three fields."""
    return {
        f"{name}_ns": interval.ns if interval else None,
        f"{name}_lo_ns": interval.lo if interval else None,
        f"{name}_hi_ns": interval.hi if interval else None,
    }
