"""The queue behind a wait: requests replayed in the order in which their thread answered them.

A server's thread that waits 4 ms for its CPU makes each request wait that comes meanwhile, and then
each of them for those before it. Taking the 4 ms away from each span leaves that queue in; it is
gone when the thread is not held up. What the spans' ends would have been follows from Lindley's
recursion (The theory of queues with a single server, 1952): a thread ends a request one service
after its data was there and the request before it had ended, whichever is later.

    end[i] = max(ready[i], end[i-1]) + service[i]

As recorded that holds by definition of `service`. A fix shortens services, and the recursion says
when each request would have ended then. Unrolled it is a cumulative sum and a running maximum,
which every engine does alike.

It needs spans from when their data was ready to their answer, all of them, and a thread that
answers one after the other. Spans of which more than a quarter of the work was done before the one
before them ended are not of that kind, and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ibis

if TYPE_CHECKING:
    from ibis.expr.types import IntegerValue, Table

    from tailscope.measure import Spans

#: The cause that says how long a request's data lay ready while its thread did other work.
QUEUE = "queue"
#: Causes that take the thread off its CPU. Before a request's own work began they are counted in
#: it as well as in those that were waiting before it; all else is only counted in its own work.
OFF_CPU = ("runqueue", "preempted", "throttled", "lock", "io", "network", "sleep")
THREAD = ("ledger", "pid", "tid")
#: Above so many rows fixes are taken alone, and said to be. Some twenty windows over all rows take
#: 60 s and 2.7 GiB of memory for 10 million rows, beside 9 s and 0.4 GiB for all else.
MOST_ROWS = 1_000_000


def total(values: list[IntegerValue]) -> IntegerValue:
    """The sum of some expressions; 0 of none."""
    found = ibis.literal(0, "int64")
    for value in values:
        found = found + value
    return found


def replayed(spans: Spans, more: dict[str, IntegerValue], from_ns: int) -> Table:
    """The spans of at least `from_ns` that began while their thread was busy with another.

    `plain` is their wall time without what a fix takes of some causes (`more`, ns), `replay` is
    that in the order of their thread. Both in ns, with `block` and `weight`.
    """
    table = spans.table.filter(spans.table.wall_ns >= from_ns)
    off = total([spans.value(cause) for cause in spans.active if cause in OFF_CPU])
    table = table.select(
        *THREAD,
        "start_ns",
        "weight",
        "wall_ns",
        block=spans.block,
        end_ns=table.start_ns + table.wall_ns,
        queue=spans.value(QUEUE),
        off=off,
        off_gain=total([ns for cause, ns in more.items() if cause in OFF_CPU]),
        on_gain=total([ns for cause, ns in more.items() if cause not in OFF_CPU]),
    )
    table = in_order(table)
    # Only what was served one by one: most of its work came after the one before it had ended.
    work = table.wall_ns - table.queue - table.off
    table = in_order(table.filter((work - table.own) * 4 <= work))
    # Off-CPU time up to the end of the one before belongs to that one's service.
    own_off = ibis.greatest(table.off - ibis.greatest(table.late - table.queue, 0), 0)
    gain = ibis.least(table.on_gain + ibis.least(table.off_gain, own_off), table.own)
    table = table.mutate(left=table.own - gain)
    until_here = ibis.window(
        group_by=THREAD, order_by=["end_ns", "start_ns"], preceding=None, following=0
    )
    table = table.mutate(done=table.left.sum().over(until_here))
    latest = (table.start_ns - (table.done - table.left)).max().over(until_here)
    # Some engines sum whole numbers into wider ones; a span's ns are exact in a float.
    replay = (table.done + latest - table.start_ns).cast("float64").cast("int64")
    table = table.mutate(plain=table.wall_ns - table.off_gain - table.on_gain, replay=replay)
    return table.filter(table.late > 0).select("block", "weight", "plain", "replay")


def in_order(table: Table) -> Table:
    """With `late`, how long (ns) a span lay behind the one before it, and `own`, its service."""
    thread = ibis.window(group_by=THREAD, order_by=["end_ns", "start_ns"])
    table = table.mutate(before=table.end_ns.lag().over(thread).fill_null(0))
    return table.mutate(
        late=ibis.greatest(table.before - table.start_ns, 0),
        own=table.end_ns - ibis.greatest(table.start_ns, table.before),
    )


def applies(limits: dict[str, int]) -> bool:
    """Whether a fix of these causes shortens services; to fix the queue itself does not."""
    return QUEUE not in limits
