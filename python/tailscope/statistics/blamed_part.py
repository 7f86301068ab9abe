"""A cause without one of those who are to blame for it: what is *that* worth?

`explain --without queue` brings all queues down to their median, also those that come of ordinary
load. To make the one slow kind of request faster that others queue behind, or to take one program
from the machine, leaves these as they are. So with `queue:GET /report` only the spans change that
name this one for the longest part of the cause's time (`blame`).

Who waited behind a slow request made others wait in turn, and these name each other. So where
requests can be replayed (`replay`), a queue behind requests of another name is also replayed as if
they had taken no time. For other causes the queue behind a wait stays. Of all ways to compute it,
the one that saves most counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import ibis

from tailscope.engines.grid import lower_edge
from tailscope.engines.spans import Spans, column
from tailscope.errors import LedgerError
from tailscope.ledger.causes import BLAMED, QUEUE
from tailscope.statistics import counterfactual
from tailscope.statistics.blame import IN_WORDS
from tailscope.statistics.bootstrap import interval_of, redrawn
from tailscope.statistics.counterfactual import Baseline, Counterfactual, compare
from tailscope.statistics.fix import Remedies
from tailscope.statistics.replay import Queued

#: Names as the ledger has them, by how the report writes them.
RECORDED = {words: name for name, words in IN_WORDS.items()}
#: Between a cause and who is to blame for it.
MARK = ":"
#: How many names an error lists.
LISTED = 8
#: Who is to blame in more of the spans with a cause than this has its usual part, too.
MOSTLY = 0.5


@dataclass(frozen=True)
class Part:
    """What is to be fixed: a cause, or of it what one is to blame for."""

    cause: str
    blamed: str | None = None

    @classmethod
    def of(cls, text: str) -> Part:
        """From `CAUSE` or `CAUSE:NAME`."""
        cause, mark, name = text.partition(MARK)
        return cls(cause, RECORDED.get(name, name) if mark else None)


def without(
    spans: Spans, whole: Baseline, remedies: Remedies, texts: Sequence[str]
) -> Counterfactual:
    """The percentile with all of these fixed at once.

    Raises `LedgerError` where nobody of a name is to blame for a cause.
    """
    parts = [Part.of(text) for text in texts]
    all_of = dict.fromkeys(one.cause for one in parts if one.blamed is None)
    some_of: dict[str, list[str]] = {}
    for one in parts:
        if one.blamed is not None and one.cause not in all_of:
            some_of.setdefault(one.cause, []).append(one.blamed)
    shares = {cause: share_of(spans, cause, names) for cause, names in some_of.items()}
    capped = spans
    for cause, names in some_of.items():
        if cause in remedies.medians:
            capped = only(capped, cause, names, remedies.medians[cause])
    replay = replayed(spans, whole, some_of[QUEUE]) if QUEUE in some_of else None

    def best(usual: Mapping[str, int]) -> Counterfactual:
        """Each way leaves something, such as a queue behind a wait: to fix more saves no less."""
        found = [counterfactual.at_once(capped, whole, remedies, [*all_of, *some_of], usual)]
        if all_of and some_of:
            found.append(counterfactual.at_once(spans, whole, remedies, list(all_of), usual))
        if replay:
            found.append(replay)
        return min(found, key=lambda one: one.predicted.ns)

    # To name one leaves what others are to blame for, which is the usual unless most name it.
    varies = {*all_of, *(cause for cause, share in shares.items() if share > MOSTLY)}
    usual = {cause: ns for cause, ns in remedies.usual.items() if cause in varies}
    return best({}).down_to(best(usual) if usual else None, tuple(usual))


def replayed(spans: Spans, whole: Baseline, names: Sequence[str]) -> Counterfactual | None:
    """The percentile if requests of these names had taken no time of the threads that the spans
    waited for; None if that can't be replayed."""
    known = counterfactual.among(spans, whole, (QUEUE,))
    queued = known[0].queued if known else None
    if not known or not isinstance(queued, Queued) or not set(names) <= set(queued.answers.names):
        return None
    base = known[1]
    walls = queued.without(base.walls, names)
    draws = redrawn(base.draws, walls, base.quantile)
    found, replicates = interval_of(walls, draws, base.quantile)
    if min(found.ns, float(replicates.min())) < lower_edge(queued.from_bin):
        return None  # faster spans are not replayed
    return compare(base.drawn(draws), found.ns, replicates)


def share_of(spans: Spans, cause: str, names: Sequence[str]) -> float:
    """The part (0 to 1) of the spans with a cause for which these are to blame.

    Raises `LedgerError` unless each of them is to blame for it in some span.
    """
    by = f"{cause}_by"
    if cause not in BLAMED or by not in spans.columns:
        raise LedgerError(f"this ledger does not say who is to blame for {cause}")
    table = spans.table
    value = spans.value(cause)
    rows = table.filter(value > 0, table[by].notnull())
    sums = {"ns": spans.weigh(value), "weight": spans.weight()}
    found = spans.engine.run(rows.group_by(by=table[by]).agg(**sums))
    times = zip(found["ns"].astype(float).tolist(), map(str, found["by"]), strict=True)
    known = [name for _, name in sorted(times, key=lambda one: (-one[0], one[1]))]
    for name in names:
        if name not in known:
            listed = ", ".join(known[:LISTED]) or "nobody"
            raise LedgerError(f"'{name}' is not to blame for {cause}; to blame are {listed}")
    weights = dict(zip(map(str, found["by"]), found["weight"].astype(float), strict=True))
    return sum(weights[name] for name in set(names)) / sum(weights.values())


def only(spans: Spans, cause: str, names: Sequence[str], limit_ns: int) -> Spans:
    """The spans, in which a cause is above its limit only where one of these is to blame.

    What others are to blame for becomes a cause of its own, which nothing fixes.
    """
    value, by = spans.table[column(cause)], spans.table[f"{cause}_by"]
    # Null stays null: the cause was not measured there.
    capped = ibis.ifelse(value > limit_ns, limit_ns, value)
    kept = ibis.ifelse(by.isin(names), value, capped)
    stays = f"{cause}_of_others"
    table = spans.table.mutate(**{column(cause): kept, column(stays): (value - kept).fill_null(0)})
    active = (*spans.active, stays)
    more = {"in_memory": None, "subset": None, "tail": None, "queued": None}
    return replace(spans, table=table, active=active, **more)
