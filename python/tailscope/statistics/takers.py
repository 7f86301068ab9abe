"""Which thread a request waited for, where another one took it in the end.

Threads of a runtime share what waits for them (tokio, Go, pools). If the one that polls for data is
busy with a slow request, the data of others waits for it, and any thread takes that then. The
ledger has the thread that answered. That one was idle, and the queue was behind the busy one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]

#: A shorter queue is no more than a thread on its way, ns.
LEAST_QUEUE_NS = 50_000
#: How many of the requests that ended last are candidates.
LOOKED_AT = 16


def waited_for(
    pid: Times, tid: Times, start: Times, began: Times, end: Times, occupies: NDArray[np.bool_]
) -> tuple[Times, Times]:
    """The thread behind which each request waited, mostly its own; then how long it was on another.

    A request queued from `start` to `began`, when its own work began, and ended at `end`, ns. It
    `occupies` its thread if it did not leave it in between.
    """
    found, elsewhere = tid.copy(), np.zeros_like(end)
    queued = began - start
    for one in np.unique(pid[queued >= LEAST_QUEUE_NS]):
        members = np.flatnonzero(pid == one)
        members = members[np.argsort(end[members], kind="stable")]
        for row, busy in _behind_others(members, tid, start, began, end, occupies):
            found[row] = found[busy]
            elsewhere[row] = end[row] - end[busy]
    return found, elsewhere


def _behind_others(
    members: NDArray[np.intp],
    tid: Times,
    start: Times,
    began: Times,
    end: Times,
    occupies: NDArray[np.bool_],
) -> Iterator[tuple[int, int]]:
    """Rows of a process, in order of their ends, each with that of another thread before it."""
    rows = members[began[members] - start[members] >= LEAST_QUEUE_NS]
    long = end[members] - began[members] >= LEAST_QUEUE_NS // 2
    members = members[long & occupies[members]]
    if not len(members):
        return
    until = began[rows]
    place = np.searchsorted(end[members], until, side="right")
    best, longest = np.full(len(rows), -1), np.zeros(len(rows), dtype=np.int64)
    own = np.zeros(len(rows), dtype=np.int64)
    for back in range(1, LOOKED_AT + 1):
        other = members[np.maximum(place - back, 0)]
        overlap = np.maximum(end[other] - np.maximum(began[other], start[rows]), 0)
        overlap[(place < back) | (other == rows)] = 0
        mine = tid[other] == tid[rows]
        own += np.where(mine, overlap, 0)
        longer = ~mine & (overlap > longest)
        best, longest = np.where(longer, other, best), np.where(longer, overlap, longest)
    waited = until - start[rows]
    chosen = (longest * 2 > waited) & (longest > 2 * own)
    yield from zip(rows[chosen].tolist(), best[chosen].tolist(), strict=True)
