"""What a recording does not cover: requests that are no rows, and times that other requests share.

The recorder counts, in `uncovered` of ledger.json, the requests at sockets for which it writes no
row, and the answers whose rows are too short. Shares are of all requests: the spans that the rows
stand for, and the requests without a row. Ledgers of older recorders have no such counts, and then
nothing is said.

The notices come before every other line: a figure that leaves out half of the requests must not be
read first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tailscope.engines.engine import OTHERS, Engine, filled
from tailscope.engines.grid import bins_of, lower_edge
from tailscope.ledger.ledger import Ledger, counted
from tailscope.ledger.totals import Overview
from tailscope.ledger.uncovered import (
    AMBIGUOUS,
    CONTINUED,
    ENCRYPTED,
    HANDSHAKES,
    NO_ROW,
    UNNAMED,
)
from tailscope.quantity import percent

if TYPE_CHECKING:
    from ibis.expr.types import Table

#: The names of spans that are requests at sockets. Spans from other sources are not among the
#: requests that the recorder counts.
REQUESTS = ("recv..send", "ready..send")
#: The source of spans that follows requests from thread to thread.
SLICED = "request"
#: From which share of all requests on a gap is reported.
WORTH_SAYING = 0.005
#: The cause of a request that another thread answered than received.
UNKNOWN = "unknown"
#: From which share of those on the causes of the others are in doubt.
HANDED_OVER = 0.05
#: From which share of the slow spans on their `running` is in doubt.
SHARED = 0.2


@dataclass(frozen=True)
class Shared:
    """How many slow spans of one name shared their thread with other requests while open."""

    span: str
    #: The part of the spans (0 to 1) at or above the target that had other requests.
    share: float


@dataclass(frozen=True)
class Coverage:
    """What the rows of a ledger do not cover; counts are of requests."""

    #: All requests: those that the rows stand for, and those that are no rows.
    requests: float
    #: Counts by the keys of `uncovered`; None where no recorder counted.
    uncovered: dict[str, int] | None
    #: For each span name that was asked for; empty where the ledger does not know.
    shared: tuple[Shared, ...] = ()
    #: How many requests another thread answered than received; 0 where the ledger does not know.
    handed_over: float = 0.0

    def share(self, *keys: str) -> float:
        """The part of all requests (0 to 1) that some counts are."""
        found = sum((self.uncovered or {}).get(key, 0) for key in keys)
        return found / self.requests if self.requests > 0 else 0.0

    @property
    def notices(self) -> tuple[str, ...]:
        """What the reader must know before the first figure: sentences without a full stop."""
        every = (self.missing, self.unknown, self.too_short, self.over_tls, self.doubtful)
        every = (*every, self.unnamed, self.sharing)
        return tuple(notice for some in every for notice in some())

    def missing(self) -> Iterator[str]:
        """The requests that are no rows, and what that means for the others."""
        share = self.share(*NO_ROW)
        if share >= WORTH_SAYING:
            text = f"{percent(share)} of the requests are not in this recording: "
            reasons = [key for key in NO_ROW if self.share(key) > 0]
            if len(reasons) == 1:
                yield text + NO_ROW[reasons[0]][0]
            else:
                reasons.sort(key=self.share, reverse=True)
                listed = (f"{percent(self.share(key))} {NO_ROW[key][1]}" for key in reasons)
                yield text + "; ".join(listed)

    @property
    def handed_over_share(self) -> float:
        """The part of all requests (0 to 1) that another thread answered than received."""
        return self.handed_over / self.requests if self.requests > 0 else 0.0

    def unknown(self) -> Iterator[str]:
        """The requests whose time is not divided, and what that means for the others."""
        share = self.handed_over_share
        if share < WORTH_SAYING:
            return
        yield (
            f"{percent(share)} of the requests moved to another thread (Go, a pool of workers): "
            "their latency is right, but their cause is `unknown`"
        )
        if share >= HANDED_OVER:
            yield (
                "The causes of the other requests may be a runtime's idle wait, not time that a "
                "request needed"
            )

    def too_short(self) -> Iterator[str]:
        """The requests whose answers went on after their span."""
        share = self.share(CONTINUED)
        if share >= WORTH_SAYING:
            yield (
                f"{percent(share)} of the requests have answers that continued after the end of "
                "their span: these spans are too short"
            )

    def over_tls(self) -> Iterator[str]:
        """The rows of connections with TLS."""
        share = self.share(ENCRYPTED)
        if share < WORTH_SAYING:
            return
        if self.uncovered and self.uncovered.get(HANDSHAKES):
            yield (
                f"{percent(share)} of the requests came over TLS, and nothing tells handshakes and "
                "requests that overlap (HTTP/2) from others"
            )
        else:
            yield (
                f"{percent(share)} of the requests came over TLS: handshakes count as requests, "
                "and those that overlap (HTTP/2) as one; where OpenSSL or BoringSSL decrypts, "
                "record --tls-names tells them apart"
            )

    def doubtful(self) -> Iterator[str]:
        """The rows in which some time may be another request's."""
        share = self.share(AMBIGUOUS)
        if share >= WORTH_SAYING:
            yield (
                f"{percent(share)} of the requests overlapped, or other threads worked for them, "
                "so that some of their time may belong to another request: their latency is right, "
                "but their causes may not be"
            )

    def unnamed(self) -> Iterator[str]:
        """The rows that have no name of their own."""
        share = self.share(UNNAMED)
        if share >= WORTH_SAYING:
            yield (
                f"{percent(share)} of the requests are named `(other)`: too many different names "
                "came, as from a scanner"
            )

    def sharing(self) -> Iterator[str]:
        """The slow requests that were not alone on their thread."""
        for one in self.shared:
            if one.share >= SHARED:
                of = f" of {one.span}" if len(self.shared) > 1 else ""
                yield (
                    f"{percent(one.share)} of the slow requests{of} shared their thread with other "
                    "requests while they were open: part of their `running` may belong to those"
                )

    def to_dict(self) -> dict[str, Any]:
        """What `--json` prints."""
        counted = self.uncovered is not None
        return {
            "requests": self.requests,
            "uncovered": self.uncovered,
            "not_in_recording_share": self.share(*NO_ROW) if counted else None,
            "too_short_share": self.share(CONTINUED) if counted else None,
            "over_tls_share": self.share(ENCRYPTED) if counted else None,
            "unknown_share": self.handed_over_share,
            "shared_thread": [asdict(one) for one in self.shared],
            "notices": list(self.notices),
        }


def covered(
    engine: Engine,
    table: Table,
    overview: Overview,
    ledger: Ledger,
    targets: Sequence[tuple[str, float]],
) -> Coverage:
    """The coverage of a ledger; `targets` are span names with the percentile (ns) of each."""
    uncovered = counts(ledger)
    at_sockets = [total for total in overview.totals if total.span in REQUESTS]
    rows = sum(total.weight for total in at_sockets or overview.totals)
    return Coverage(
        requests=rows + sum((uncovered or {}).get(key, 0) for key in NO_ROW),
        uncovered=uncovered,
        shared=tuple(sharing(engine, table, ledger, targets)),
        handed_over=0.0 if sliced(ledger) else handed_over(engine, table, ledger),
    )


def sliced(ledger: Ledger) -> bool:
    """Whether its requests were put together from what all threads did."""
    return any(SLICED in recording.about.get("spans", ()) for recording in ledger.recordings)


def handed_over(engine: Engine, table: Table, ledger: Ledger) -> float:
    """How many requests another thread answered than received."""
    column = f"{UNKNOWN}_ns"
    if column not in ledger.contents.columns:
        return 0.0
    moved = table.filter(table[column].fill_null(0) > 0)
    found = engine.run(moved.agg(weight=moved.weight.sum()))
    return float(filled(found["weight"])[0])


def counts(ledger: Ledger) -> dict[str, int] | None:
    """The sums of all recordings' counts; None where no recording has any."""
    found: dict[str, int] = {}
    for recording in ledger.recordings:
        for key, count in counted(recording.about).items():
            found[key] = found.get(key, 0) + count
    return found or None


def sharing(
    engine: Engine, table: Table, ledger: Ledger, targets: Sequence[tuple[str, float]]
) -> Iterator[Shared]:
    """The part of each name's slow spans that shared their thread, where the ledger knows it."""
    if OTHERS not in ledger.contents.columns:
        return
    for name, target_ns in targets:
        floor_ns = int(lower_edge(bins_of(int(target_ns))))
        slow = table.filter(table.span == name, table.wall_ns >= floor_ns)
        # Spans whose recorder did not know count as alone.
        busy = (slow.others.fill_null(0) > 0).cast("int64")
        found = engine.run(
            slow.agg(
                known=slow.others.count(),
                weight=slow.weight.sum(),
                shared=(slow.weight * busy).sum(),
            )
        )
        known, weight, shared = (float(filled(found[key])[0]) for key in found)
        if known and weight > 0:
            yield Shared(name, shared / weight)
