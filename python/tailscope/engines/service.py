"""Each thread's requests with the time that they take alone: what a simulator of queues needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines.connect import connect
from tailscope.engines.spans import THREAD, column
from tailscope.errors import TailscopeError
from tailscope.ledger.causes import DOWNSTREAM, QUEUE

if TYPE_CHECKING:
    from tailscope.ledger.ledger import Ledger

#: More requests than this say nothing new, and take memory: the first ones count.
MOST = 2_000_000
#: Waits for other load and for other servers. They are no work of the request's thread.
WAITS = (QUEUE, "accept", "runqueue", "preempted", "throttled", "steal", DOWNSTREAM)


@dataclass(frozen=True)
class Service:
    """The requests of a ledger, sorted by thread and arrival."""

    #: The number of its thread.
    thread: NDArray[np.int64]
    arrival_ns: NDArray[np.int64]
    wall_ns: NDArray[np.int64]
    #: The wall time less all waits for a CPU, for other requests and for other servers.
    work_ns: NDArray[np.int64]
    #: Requests of the ledger; those beyond MOST are not here.
    rows: int


def service(ledger: Ledger) -> Service:
    """The requests; an error if some are missing, or their arrival is not known."""
    engine = connect(ledger)
    table = engine.table()
    if column(QUEUE) not in table.columns or not set(THREAD) <= set(table.columns):
        raise TailscopeError(
            "the ledger does not say when requests came; record with --span request"
        )
    table = table.filter(table[column(QUEUE)].notnull())
    counted = engine.run(
        table.agg(
            rows=ibis._.count(),
            weight=ibis._.weight.max(),
            queued=(table[column(QUEUE)] > 0).sum(),
        )
    )
    rows = int(counted["rows"][0])
    if rows == 0 or int(counted["queued"][0]) == 0:
        raise TailscopeError(
            "no request of the ledger waited for another: the load was too light to be played "
            "again, or arrivals are not known; record with --span request under load"
        )
    if float(counted["weight"][0]) > 1:
        raise TailscopeError(
            "some requests are missing in the ledger; record without --sample, --tail and --keep"
        )
    work = table.wall_ns
    for cause in WAITS:
        if column(cause) in table.columns:
            work = work - table[column(cause)].fill_null(0)
    found = engine.run(
        table.select(*THREAD, "start_ns", "wall_ns", work_ns=ibis.greatest(work, 0))
        .order_by("start_ns")
        .limit(MOST)
    )
    of = np.stack([found[name] for name in THREAD], axis=1)
    _, thread = np.unique(of, axis=0, return_inverse=True)
    order = np.lexsort((found["start_ns"], thread.ravel()))
    return Service(
        thread.ravel()[order],
        found["start_ns"][order],
        found["wall_ns"][order],
        found["work_ns"][order],
        rows,
    )
