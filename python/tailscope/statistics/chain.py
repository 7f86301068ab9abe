"""Chains: what another server did while requests waited for it.

A ledger of `request` spans knows of each request the call that it waited for the longest: on which
connection, when it was sent, and when its answer was ready. A ledger of the other server knows on
which connection each of its requests came. Both number a connection alike. A call and a request on
its connection belong together if the request began while the call was under way; of several, the
one that overlaps it most.

The clocks of two ledgers can differ: each counts from its own start, and the machines may be two.
The offset comes from the exchanges themselves: a request lies within its call, and the median of
the room before it, less the room after it, halved, is how far its clock is ahead. That is right if
the way there takes as long as the way back (as NTP assumes: RFC 5905, section 8).

What is opened is never more than the call: of a request that goes on after its first answer, a like
part of each cause counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.calls import Calls, Served, calls, is_known, served
from tailscope.engines.grid import bins_of, lower_edge
from tailscope.engines.spans import Spans
from tailscope.errors import TailscopeError
from tailscope.ledger.causes import DOWNSTREAM
from tailscope.ledger.ledger import Ledger
from tailscope.quantity import count, duration, percent

#: A request may begin this much earlier than its call was sent: the send itself takes time.
LEEWAY_NS = 200_000
#: The first join allows this much, if less than half of the calls join without an offset.
FIRST_LEEWAY_NS = 50_000_000
#: A call is compared with at most this number of requests that began before its end.
CANDIDATES = 4
#: The clocks are compared until the offset changes by less than this, at most `ROUNDS` times.
SAME_CLOCK_NS = 50_000
ROUNDS = 4
#: If more requests than this share are not joined, the first lines of the output say so.
WORTH_SAYING = 0.005

Index = NDArray[np.intp]


@dataclass(frozen=True)
class Opened:
    """Where the time went that some spans waited for other servers: means per span, in ns."""

    #: Spans that were looked at (by weight), those of them that waited for another server, and
    #: those whose call was joined with a request.
    spans: float
    asked: float
    joined: float
    downstream_ns: float
    #: The other server's causes.
    causes: dict[str, float]
    #: The way to the server and back: of joined calls what its request did not take.
    path_ns: float
    #: Calls that were not joined, and all but the longest call of a request.
    closed_ns: float
    #: Which of the other server's requests took that time.
    names: dict[str, float]


@dataclass(frozen=True)
class Chain:
    """The `downstream` time of a ledger's spans, opened into another ledger's causes."""

    through: tuple[str, ...]
    tail: Opened
    every: Opened
    #: How far the other ledger's clock is ahead; None where nothing was joined.
    clock_offset_ns: float | None
    hosts: tuple[str, ...]

    @property
    def notices(self) -> tuple[str, ...]:
        """What the reader must know before the first figure."""
        return tuple(self._notices())

    def _notices(self) -> Iterator[str]:
        asked, joined = self.every.asked, self.every.joined
        if asked <= 0:
            yield "no request of this kind waited for another server: there is nothing to open"
        elif (asked - joined) / asked >= WORTH_SAYING:
            yield (
                f"{percent((asked - joined) / asked)} of the requests that waited for another "
                f"server were not found in {', '.join(self.through)}: their time stays `downstream`"
            )
        if len(self.hosts) > 1:
            yield (
                f"the ledgers are of several machines ({', '.join(self.hosts)}): requests are "
                "joined by a clock offset that is estimated"
            )


def open_chain(spans: Spans, target_ns: float, ledger: Ledger, through: Ledger) -> Chain:
    """Open the `downstream` time of spans, of those at or above the target and of all."""
    for one in (ledger, through):
        if not is_known(one):
            paths = ", ".join(recording.path for recording in one.recordings)
            raise TailscopeError(
                f"{paths} does not say on which connections requests came; record both servers "
                "with --span request"
            )
    if DOWNSTREAM not in spans.active:
        nothing = Opened(0, 0, 0, 0, {}, 0, 0, {})
        return Chain(paths_of(through), nothing, nothing, None, hosts(ledger, through))
    floor_ns = int(lower_edge(bins_of(int(target_ns))))
    every = calls(spans, spans.table.wall_ns >= 0, spans.rows)
    tail = calls(spans, spans.table.wall_ns >= floor_ns, 0)
    both = (every, tail)
    known = [one.known for one in both]
    if not any(part.any() for part in known):
        closed = [closed_of(one) for one in both]
        return Chain(paths_of(through), closed[1], closed[0], None, hosts(ledger, through))
    starts = np.concatenate([one.start[one.known] for one in both])
    ends = np.concatenate([one.end[one.known] for one in both])
    connections = np.unique(np.concatenate([one.connection[one.known] for one in both]))
    # The clocks may differ by a while, which a second covers on one machine.
    around = 1_000_000_000
    found = served(
        through, connections.tolist(), int(starts.min()) - around, int(ends.max()) + around
    )
    offset, _ = synchronised(every, found)
    opened = [open_calls(one, found, join(one, found, offset)) for one in both]
    whole = offset if opened[0].joined or opened[1].joined else None
    return Chain(paths_of(through), opened[1], opened[0], whole, hosts(ledger, through))


def paths_of(ledger: Ledger) -> tuple[str, ...]:
    """What a ledger's recordings are called."""
    return tuple(recording.path for recording in ledger.recordings)


def hosts(*ledgers: Ledger) -> tuple[str, ...]:
    """The machines that were recorded."""
    return tuple(sorted({one.host for ledger in ledgers for one in ledger.recordings}))


def synchronised(asked: Calls, found: Served) -> tuple[float, Index]:
    """How far the clock of the requests is ahead of the calls', and which belong together by it."""
    offset, index = 0.0, join(asked, found, 0.0)
    if 2 * np.count_nonzero(index >= 0) < np.count_nonzero(asked.known):
        index = join(asked, found, 0.0, FIRST_LEEWAY_NS)
    for _ in range(ROUNDS):
        more = ahead(asked, found, index, offset)
        if more is None or abs(more) <= SAME_CLOCK_NS:
            break
        offset += more
        index = join(asked, found, offset)
    return offset, index


def ahead(asked: Calls, found: Served, index: Index, offset: float) -> float | None:
    """How much more the clock of the requests is ahead than `offset` says."""
    rows = np.flatnonzero(index >= 0)
    chosen = index[rows]
    before = found.start[chosen] - offset - asked.start[rows]
    after = asked.end[rows] - (found.end[chosen] - offset)
    inside = found.wall[chosen] <= asked.length[rows] + LEEWAY_NS  # it ended with its answer
    if not inside.any():
        return None
    return float(np.median((before - after)[inside]) / 2)


def join(asked: Calls, found: Served, offset: float, leeway: int = LEEWAY_NS) -> Index:
    """For each call the request that it is; -1 where there is none."""
    none = np.full(len(asked.start), -1, dtype=np.intp)
    if len(found.start) == 0 or len(none) == 0:
        return none
    shift = round(offset)
    start, end = found.start - shift, found.end - shift
    order = np.lexsort((start, found.connection))
    # The last request that began on the connection before the end of each call.
    connection = np.concatenate([found.connection[order], asked.connection])
    moment = np.concatenate([start[order], asked.end])
    is_call = np.arange(len(connection)) >= len(order)
    merged = np.lexsort((is_call, moment, connection))
    before = np.empty(len(connection), dtype=np.intp)
    before[merged] = np.cumsum(~is_call[merged]) - 1
    last = before[len(order) :]
    best = np.full(len(none), -1, dtype=np.int64)
    for back in range(CANDIDATES):
        place = last - back
        row = order[np.maximum(place, 0)]
        fits = (place >= 0) & asked.known & (found.connection[row] == asked.connection)
        fits &= start[row] >= asked.start - leeway
        shared = np.minimum(end[row], asked.end) - np.maximum(start[row], asked.start)
        shared = np.maximum(shared, 0)
        better = fits & (shared > best)
        none[better], best[better] = row[better], shared[better]
    return none


def open_calls(asked: Calls, found: Served, index: Index) -> Opened:
    """Means per span of what calls went to, for those that were joined."""
    rows = np.flatnonzero(index >= 0)
    chosen = index[rows]
    weight = asked.weight[rows]
    spans = max(asked.requests, 1e-9)
    # Part of the call may lie in time in which threads worked for the request.
    length = np.minimum(asked.length[rows], asked.downstream[rows]).astype(np.float64)
    wall = found.wall[chosen].astype(np.float64)
    share = np.minimum(length / np.maximum(wall, 1.0), 1.0)
    inside = np.minimum(wall, length)

    def mean(values: NDArray) -> float:
        return float((values * weight).sum() / spans)

    causes = {name: mean(ns[chosen] * share) for name, ns in found.causes.items()}
    names, number = np.unique(found.span[chosen].astype(str), return_inverse=True)
    by_name = np.bincount(number, inside * weight, minlength=len(names)) / spans
    downstream = float((asked.downstream * asked.weight).sum() / spans)
    return Opened(
        spans=asked.requests,
        asked=float(asked.weight.sum()),
        joined=float(weight.sum()),
        downstream_ns=downstream,
        causes={name: ns for name, ns in causes.items() if ns > 0},
        path_ns=mean(length - inside),
        closed_ns=max(downstream - mean(length), 0.0),
        names=dict(zip(names.tolist(), by_name.tolist(), strict=True)),
    )


def closed_of(asked: Calls) -> Opened:
    """Where nothing can be joined."""
    nothing = np.zeros(0, dtype=np.int64)
    empty = Served(nothing, nothing, nothing, np.zeros(0, dtype=str), {})
    return open_calls(asked, empty, np.full(len(asked.start), -1, dtype=np.intp))


def words(chain: Chain) -> Iterator[str]:
    """How the join went, in sentences."""
    every = chain.every
    yield (
        f"{count(every.joined)} of {count(every.asked)} requests that waited for another server "
        f"were joined with a request in {', '.join(chain.through)}, by connection and time"
    )
    offset = chain.clock_offset_ns
    if offset is not None and abs(offset) > SAME_CLOCK_NS:
        yield f"its clock is {duration(abs(offset))} {'ahead' if offset > 0 else 'behind'}"
