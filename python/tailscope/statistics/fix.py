"""A fix: causes brought down to a limit, and what that takes of each span.

With a cause goes its penalty (`cache_penalty`, `interrupt_penalty`): part of the running of the
spans that it struck. Of some causes only the most that it may be is known (`possible_penalty`).
Causes stay exclusive: what is put down to one is not running's too, so to fix `running` alone
leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING, TypeVar

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines.penalty import Penalty
from tailscope.engines.spans import Spans
from tailscope.ledger.causes import RUNNING

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue

    from tailscope.engines.sample import Sample

    #: Whole numbers of all rows: as an expression, or in memory.
    Whole = TypeVar("Whole", IntegerValue, NDArray[np.int64])


@dataclass(frozen=True)
class Fix:
    """What is fixed: no cause in `limits` is above its limit (ns), and `penalties` are gone."""

    limits: dict[str, int]
    penalties: tuple[Penalty, ...] = ()
    #: Penalties of causes that are not fixed: running that to fix `running` does not take.
    stays: tuple[Penalty, ...] = ()
    #: The most that the penalties of further causes may be: between this and nothing of them goes.
    perhaps: tuple[Penalty, ...] = ()
    #: The same, and all of it goes.
    whole: tuple[Penalty, ...] = ()
    #: Of some causes only spans with more than this (ns) change: up to there is usual.
    usual: dict[str, int] = field(default_factory=dict)

    @property
    def bare(self) -> Fix:
        """The same, but the penalties stay."""
        stays = (*self.penalties, *self.stays)
        return Fix(self.limits, stays=stays, usual=self.usual)

    @property
    def changed_above(self) -> dict[str, int]:
        """From how much of each cause on (ns) a span changes."""
        return {cause: max(ns, self.usual.get(cause, ns)) for cause, ns in self.limits.items()}

    @property
    def at_most(self) -> Fix:
        """The same, but all goes that may go."""
        return replace(self, perhaps=(), whole=self.perhaps)

    def more(self, spans: Spans) -> dict[str, IntegerValue]:
        """What it takes of each cause (ns)."""
        return self.taken(spans.value, lambda one: one.gain(spans), ibis.greatest, ibis.ifelse)

    def more_in(self, rows: Sample) -> dict[str, NDArray[np.int64]]:
        """The same for rows in memory."""

        def greatest(*values: NDArray[np.int64] | int) -> NDArray[np.int64]:
            return reduce(np.maximum, values)

        value = rows.values.__getitem__
        return self.taken(value, lambda one: one.gain_in(rows), greatest, np.where)

    def taken(
        self,
        value: Callable[[str], Whole],
        gain: Callable[[Penalty], Whole],
        greatest: Callable[..., Whole],
        choose: Callable[..., Whole],
    ) -> dict[str, Whole]:
        """What it takes, from the values of causes and their penalties."""
        found = {
            cause: choose(value(cause) > above, value(cause) - self.limits[cause], 0)
            for cause, above in self.changed_above.items()
        }

        def goes_with(one: Penalty) -> Whole:
            """A penalty stays where its cause does."""
            if one.cause not in self.usual:
                return gain(one)
            return choose(value(one.cause) > self.usual[one.cause], gain(one), 0)

        # The penalties of two causes may be the same running.
        goes = [goes_with(one) for one in self.penalties]
        stays = [gain(one) for one in self.stays]
        if RUNNING in found:
            if stays:
                left = greatest(*stays, *goes, 0)
                left = left - greatest(*goes, 0) if goes else left
                found[RUNNING] = greatest(found[RUNNING] - left, 0)
            if goes and RUNNING in self.usual:
                # What the span runs may be usual, and was longer for a cause that goes.
                found[RUNNING] = greatest(found[RUNNING], *goes)
        elif goes or self.whole:
            less = greatest(*goes, 0) if goes else 0
            for one in self.whole:
                # Each may have left something behind: together no more than the span runs.
                less = less + goes_with(one)
                less = less - greatest(less - value(RUNNING), 0)
            found[RUNNING] = less
        return found


@dataclass(frozen=True)
class Remedies:
    """What fixing each cause brings it to (ns), and the penalty that goes with it."""

    medians: dict[str, int] = field(default_factory=dict)
    penalties: dict[str, Penalty] = field(default_factory=dict)
    #: The most that the penalties of others may be.
    perhaps: dict[str, Penalty] = field(default_factory=dict)
    #: Of causes that most spans have: up to how much is usual (ns).
    usual: dict[str, int] = field(default_factory=dict)

    def fix(self, causes: Sequence[str], usual: Mapping[str, int] | None = None) -> Fix:
        """Some of them at once; of those in `usual`, spans keep up to so much (ns)."""
        goes = tuple(one for cause, one in self.penalties.items() if cause in causes)
        stays = tuple(one for cause, one in self.penalties.items() if cause not in causes)
        perhaps = tuple(one for cause, one in self.perhaps.items() if cause in causes)
        limits = {cause: self.medians[cause] for cause in causes}
        kept = {cause: ns for cause, ns in (usual or {}).items() if cause in causes}
        return Fix(limits, goes, stays, perhaps, usual=kept)
