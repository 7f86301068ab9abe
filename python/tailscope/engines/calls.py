"""Calls of other servers, and the requests that those servers answered: what `statistics.chain`
joins.

What `measure` may do holds here too: each expression means the same on every engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ibis
import numpy as np
from numpy.typing import NDArray

from tailscope.engines.connect import connect
from tailscope.engines.engine import filled
from tailscope.engines.overview import LATEST_NS, LONGEST_NS, look_over
from tailscope.engines.spans import Spans
from tailscope.ledger.causes import DOWNSTREAM, RUNNING
from tailscope.ledger.ledger import CHAIN, Ledger

if TYPE_CHECKING:
    from ibis.expr.types import BooleanValue

#: Rows of each kind that are looked at, at most. Of more, every n-th by its start is.
MOST_CALLS = 200_000
MOST_SERVED = 4_000_000
#: The most connections that a query can name.
MOST_NAMED = 2_000

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Calls:
    """Requests that waited for other servers, and of each the call that it waited for the longest.

    Times are in ns. `known` is False where the ledger has no connection for the call: it went over
    a Unix socket.
    """

    connection: Times
    start: Times
    length: Times
    known: NDArray[np.bool_]
    downstream: Times
    weight: NDArray[np.float64]
    #: The weight of all requests that were looked at, with and without a call.
    requests: float

    @property
    def end(self) -> Times:
        """When each one's answer was ready."""
        return self.start + self.length


@dataclass(frozen=True)
class Served:
    """Requests of a server: whose connection, when, what they are called, and their causes (ns)."""

    connection: Times
    start: Times
    wall: Times
    span: NDArray
    causes: dict[str, Times]

    @property
    def end(self) -> Times:
        """When each one's answer was sent."""
        return self.start + self.wall


def is_known(ledger: Ledger) -> bool:
    """Whether the recorder wrote down connections."""
    return ledger.contents.columns.issuperset(CHAIN)


def calls(spans: Spans, chosen: BooleanValue, rows: int) -> Calls:
    """The calls of the chosen spans; `rows` is about how many these are."""
    table = spans.table.filter(chosen)
    every = -(-rows // MOST_CALLS)
    if every > 1:
        table = table.filter(table.start_ns % every == 0)
    waited = spans.value(DOWNSTREAM) if DOWNSTREAM in spans.active else ibis.literal(0)
    total = spans.engine.run(table.agg(weight=table.weight.sum()))
    found = spans.engine.run(
        table.filter(waited > 0)
        .select("weight", *CHAIN[1:], downstream=waited)
        .limit(2 * MOST_CALLS)
    )
    connection = found["asked_connection"]
    start, length = filled(found["asked_start_ns"]), filled(found["asked_ns"])
    makes_sense = (start > 0) & (start <= LATEST_NS) & (length >= 0) & (length <= LONGEST_NS)
    return Calls(
        connection=filled(connection),
        start=start,
        length=length,
        known=~np.ma.getmaskarray(connection) & makes_sense,
        downstream=filled(found["downstream"]),
        weight=filled(found["weight"], 0.0),
        requests=float(filled(total["weight"], 0.0)[0]),
    )


def served(ledger: Ledger, connections: Sequence[int], first_ns: int, last_ns: int) -> Served:
    """The requests of a ledger that came on some connections and began within some time."""
    with connect(ledger) as engine:
        _, table = look_over(engine, ledger)
        table = table.filter(
            table.connection.notnull(), table.start_ns >= first_ns, table.start_ns <= last_ns
        )
        if len(connections) <= MOST_NAMED:
            table = table.filter(table.connection.isin([int(one) for one in connections]))
        causes = [f"{cause}_ns" for cause in ledger.stored_causes]
        found = engine.run(
            table.select("connection", "start_ns", "wall_ns", "span", *causes).limit(MOST_SERVED)
        )
    ns = {cause: filled(found[f"{cause}_ns"]) for cause in ledger.stored_causes}
    wall = filled(found["wall_ns"])
    spent = sum(ns.values(), np.zeros(len(wall), dtype=np.int64))
    return Served(
        connection=filled(found["connection"]),
        start=filled(found["start_ns"]),
        wall=wall,
        span=filled(found["span"], ""),
        causes=ns | {RUNNING: np.maximum(wall - spent, 0)},
    )
