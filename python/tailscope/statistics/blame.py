"""Who is to blame: whose the time of a cause was, in the spans at or above the target.

A ledger names for each span and cause who is to blame for the longest wait or interruption:
who ran instead, who released the lock, which interrupt. All of the span's time of that cause is put
down to it: "mostly". A ledger of an older recorder names nobody, and then nobody is said to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.ledger.causes import BLAMED, IDLE
from tailscope.quantity import percent

if TYPE_CHECKING:
    from tailscope.engines.spans import Spans

#: How many of those to blame for a cause are told apart.
NAMED = 8
#: How many are named in words, and from which share of the cause's time on.
SAID, WORTH_SAYING = 3, 0.02
#: What the blamed one did, before its name.
VERB = {
    **{"runqueue": "behind ", "preempted": "by ", "lock": "released by ", "queue": "behind "},
    **{"network": "woken by ", "sleep": "woken by ", "stopped": "by ", "downstream": "at "},
}
#: The recorder's names for those who are no thread and no interrupt.
IN_WORDS = {
    IDLE: "an idle CPU waking up",
    "(interrupt)": "a timeout",
    "(other)": "others, of too many names",
    "(cgroup freezer)": "the cgroup freezer",
}


@dataclass(frozen=True)
class Blamed:
    """One who is to blame."""

    name: str
    #: Its part of the cause's time in spans at or above the target, 0 to 1; that time in the mean
    #: over all of those spans that have the cause; and in how many of them it was the worst.
    share: float
    mean_ns: float
    spans: float


@dataclass(frozen=True)
class Blame:
    """All who are to blame for a cause in the tail: the worst by name, the rest summed up."""

    culprits: tuple[Blamed, ...]
    others: int
    others_share: float
    #: Where the recorder could not tell.
    unknown_share: float


def blame(spans: Spans, floor_ns: int, cause: str) -> Blame | None:
    """Who is to blame for a cause in spans of at least `floor_ns`; None if nobody is named."""
    by = f"{cause}_by"
    if cause not in BLAMED or by not in spans.columns:
        return None
    rows = spans.tail or spans
    value, table = rows.value(cause), rows.table
    found = rows.engine.run(
        table.filter(table.wall_ns >= floor_ns, value > 0)
        .group_by(by=table[by])
        .agg(ns=rows.weigh(value), weight=rows.weight())
    )
    unknown = np.ma.getmaskarray(found["by"])
    ns, weight = found["ns"].astype(float), found["weight"].astype(float)
    total, struck = float(ns.sum()), float(weight.sum())
    if total <= 0 or unknown.all():
        return None
    names = found["by"]
    order = sorted(np.flatnonzero(~unknown).tolist(), key=lambda i: (-ns[i], str(names[i])))
    culprits = tuple(
        Blamed(str(names[i]), float(ns[i]) / total, float(ns[i]) / struck, float(weight[i]))
        for i in order[:NAMED]
    )
    rest = order[NAMED:]
    return Blame(
        culprits,
        others=len(rest),
        others_share=float(ns[rest].sum()) / total,
        unknown_share=float(ns[unknown].sum()) / total,
    )


def said(name: str) -> str:
    """A blamed one's name for a reader."""
    return IN_WORDS.get(name, name)


def words(cause: str, found: Blame | None) -> str:
    """The worst in words, as "behind stress-ng (82 %), kworker/0:1 (6 %)"; "" if none."""
    if found is None:
        return ""
    named = [one for one in found.culprits[:SAID] if one.share >= WORTH_SAYING] or found.culprits[
        :1
    ]
    parts = [f"{said(one.name)} ({percent(one.share)})" for one in named]
    if found.unknown_share >= WORTH_SAYING:
        parts.append(f"not known ({percent(found.unknown_share)})")
    return VERB.get(cause, "") + ", ".join(parts)


def mostly(cause: str, found: Blame | None) -> str:
    """The one who is to blame for most of a cause; "" if there is none."""
    if found is None or found.culprits[0].share < 0.5:
        return ""
    return f"mostly {VERB.get(cause, '')}{said(found.culprits[0].name)}"


def of_span(causes: dict[str, int], by: dict[str, str]) -> str:
    """Who is to blame for most of one span, as "runqueue: stress-ng"; "" if nobody is named."""
    blamed: Iterable[str] = (name for name in by if causes.get(name, 0) > 0)
    most = max(blamed, key=lambda name: causes[name], default=None)
    return f"{most}: {said(by[most])}" if most else ""
