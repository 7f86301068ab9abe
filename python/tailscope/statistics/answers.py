"""Requests in the order in which their threads answered them, see `replay`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.sample import Sample
from tailscope.ledger.causes import DOWNSTREAM, QUEUE

if TYPE_CHECKING:
    from tailscope.statistics.fix import Fix

#: Causes that take the thread off its CPU. Before a request's own work began they are counted in
#: it as well as in those that were waiting before it; all else is only counted in its own work.
#: A wait for memory is among them: the part of `reclaim` on the CPU only lies in own work.
OFF_CPU = (
    *("runqueue", "preempted", "throttled", "lock", "io", "network", "sleep"),
    *("stopped", "reclaim"),
)
#: Waits of a request in which it does not occupy its thread: before that, and after it.
BEFORE, AFTER = "accept", "tcp"
#: A request with one of these did not have its thread all the time. Another thread answered it, or
#: it waited for another server: then an event loop works for other requests.
LEAVES = ("unknown", DOWNSTREAM)

Times = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """Rows in the order in which their threads answered them.

    `first` is true where a thread's rows begin, or its rows in a time window; `opened` where such
    a window begins with one that was waiting already.
    """

    rows: Sample
    start: Times
    first: Flags
    opened: Flags
    #: Each one's number among all that were read.
    row: NDArray[np.intp]
    #: Each one's name, as a number: 0 for the spans, and what each cause usually takes of it (ns),
    #: by that number; 0 for the spans.
    kind: NDArray[np.intp]
    usual: Mapping[str, Times]
    #: Whether all that a request waited behind others is its `queue`: with `request` spans, whose
    #: other waits may have been elsewhere than on the thread that answered.
    followed: bool = False
    #: How long each was on a thread that was not the one it waited for, ns; None: none was.
    elsewhere: Times | None = None
    #: The other names, in the order of their numbers, from 1 on.
    names: tuple[str, ...] = ()

    def where(self, chosen: Flags) -> Answers:
        """Some of the rows."""
        group = np.cumsum(self.first)[chosen]
        return replace(
            self,
            rows=self.rows.where(chosen),
            start=self.start[chosen],
            first=changes(group),
            opened=self.opened[chosen],
            row=self.row[chosen],
            kind=self.kind[chosen],
            elsewhere=None if self.elsewhere is None else self.elsewhere[chosen],
        )

    def more(self, fix: Fix) -> dict[str, Times]:
        """What a fix takes of each cause. Of another name it leaves what is usual there."""
        found = fix.more_in(self.rows)
        if not self.kind.any():
            return found
        return {
            cause: np.minimum(
                ns, np.maximum(self.rows.values[cause] - self.usual[cause][self.kind], 0)
            )
            for cause, ns in found.items()
        }

    @cached_property
    def ready(self) -> Times:
        """Since when each could occupy its thread."""
        return self.start + some(self.rows.values, (BEFORE,), len(self.start))

    @cached_property
    def end(self) -> Times:
        """Since when each no longer occupied its thread."""
        end = self.start + self.rows.wall - some(self.rows.values, (AFTER,), len(self.start))
        if self.elsewhere is not None:
            end = end - self.elsewhere
        return np.maximum(end, self.ready)

    def late(self) -> Times:
        """How long (ns) each lay behind the one before it."""
        return np.maximum(self.before() - self.ready, 0)

    def before(self) -> Times:
        """When the one before each ended; for the first, when it began itself."""
        return np.where(self.first, self.ready, np.roll(self.end, 1))

    def own(self) -> Times:
        """Each one's service: from when it could begin to its end, ns."""
        return self.end - np.maximum(self.ready, self.before())

    def off(self) -> Times:
        """How long each was off its CPU."""
        return some(self.rows.values, OFF_CPU, len(self.start))

    def of_one_thread(self) -> Answers:
        """Those that had the thread that received them until its answer."""
        return self.where(some(self.rows.values, LEAVES, len(self.start)) == 0)

    def one_by_one(self) -> Answers:
        """Those of which most of the work came after the one before had ended.

        Of a followed request also most of its waits: else they did not hold up its thread.
        """
        queue = self.rows.values[QUEUE]
        work = self.end - self.ready - queue
        if self.followed:
            return self.where((self.late() - queue) * 4 <= work)
        work = work - self.off()
        return self.where((work - self.own()) * 4 <= work)

    def waiting(self) -> Answers:
        """Those behind which, or behind whom, another waits."""
        late = self.late() > 0
        return self.where(late | np.append(late[1:], False))


def some(of: Mapping[str, Times], causes: Sequence[str], rows: int) -> Times:
    """The sum of some causes' time."""
    return sum((of[name] for name in causes if name in of), np.zeros(rows, dtype=np.int64))


def changes(group: NDArray) -> Flags:
    """Where another group begins."""
    found = np.ones(len(group), dtype=bool)
    found[1:] = group[1:] != group[:-1]
    return found


def usual_by_kind(values: Mapping[str, Times], kind: NDArray[np.intp]) -> dict[str, Times]:
    """The median of each cause by the kind of rows, 0 for kind 0 and for kinds without rows."""
    order = np.argsort(kind, kind="stable")
    kinds, begins = np.unique(kind[order], return_index=True)
    found = {}
    for cause, of in values.items():
        usual = np.zeros(int(kind.max(initial=0)) + 1, dtype=np.int64)
        for one, part in zip(kinds, np.split(of[order], begins[1:]), strict=True):
            usual[one] = np.median(part) if one else 0
        found[cause] = usual
    return found
