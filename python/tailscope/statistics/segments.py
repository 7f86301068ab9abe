"""Segments: the recording cut by time, and what its typical and its worst piece are like.

A percentile over hours hides whether it is always so or came from one bad minute. VarMRI therefore
asks twice. Within the typical segment, the one with the median target percentile: why is its tail
longer than its own median? And across segments: what differs between the typical and the worst?
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from tailscope.engines import measure
from tailscope.engines.draw import load_if_few
from tailscope.engines.spans import Spans, block_power, spans_of
from tailscope.errors import TailscopeError
from tailscope.ledger.causes import CAUSES, QUEUE
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.totals import Total
from tailscope.statistics.change import Change, change, change_dict
from tailscope.statistics.contribution import Side
from tailscope.statistics.ranking import Cause, flat, rank_all, start
from tailscope.statistics.replay import with_queue
from tailscope.statistics.target import Target
from tailscope.statistics.varmri import VarMRI

#: Segments at most: each brings its own distribution to Python.
MOST = 500
UNITS = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}


@dataclass(frozen=True)
class Segment:
    """One piece of the recording."""

    start_ns: int
    #: Since the first span's begin.
    start_s: float
    spans: float
    rows: int
    p50_ns: float
    target_ns: float


@dataclass(frozen=True)
class Segments:
    """All pieces with enough spans, in order of time, and the causes within and across them."""

    length_s: float
    segments: tuple[Segment, ...]
    #: Pieces with less than one span above the target, which are left out.
    too_few: int
    #: Coefficient of variation of the segments' target percentiles: their standard deviation over
    #: their mean. A tail that is always alike has 0.
    variation: float
    best: Segment
    typical: Segment
    worst: Segment
    #: Why the typical segment's tail is longer than its median: its causes, ranked.
    within: tuple[Cause, ...]
    #: What differs from the typical to the worst segment; None where they are the same.
    across: Change | None


def parse_length(text: str) -> int:
    """A length of time in ns: 500ms, 30s, 10m, 1.5h."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if not found or found[2] not in UNITS or float(found[1]) <= 0:
        raise TailscopeError(f"'{text}' is not a length of segments; write 30s, 10m or 1h")
    return round(float(found[1]) * UNITS[found[2]])


def cut(
    spans: Spans,
    ledger: Ledger,
    totals: Sequence[Total],
    length_ns: int,
    target: Target,
    seed: int,
    method: VarMRI,
) -> Segments:
    """Cut the recording from its first span on, and explain the typical and the worst piece."""
    first = min(total.first_ns for total in totals)
    last = max(total.last_ns for total in totals)
    count = (last - first) // length_ns + 1
    if count > MOST:
        raise TailscopeError(
            f"can't compare {count:,} segments of {length_ns / 1e9:g} s: at most {MOST} are "
            f"possible; use at least {-(-(last - first) // MOST) / 1e9:.3g} s"
        )
    found = measure.walls_by_segment(spans, first, length_ns)
    segments = [
        Segment(
            start_ns=begin,
            start_s=(begin - first) / 1e9,
            spans=walls.total,
            rows=rows,
            p50_ns=walls.value_at(0.5),
            target_ns=walls.value_at(target.quantile),
        )
        for begin, (rows, walls) in found.items()
        if rows * target.beyond >= 1
    ]
    if len(segments) < 2:
        raise TailscopeError(
            f"can't compare segments of {length_ns / 1e9:g} s: this recording of "
            f"{(last - first) / 1e9:.4g} s has {len(found)}, {len(segments)} of them with enough "
            f"spans for {target.name}; use another length"
        )
    ranked = sorted(segments, key=lambda segment: segment.target_ns)
    best, typical, worst = ranked[0], ranked[(len(ranked) - 1) // 2], ranked[-1]
    within = window(spans, ledger, typical, length_ns)
    rows = load_if_few(within, typical.rows)
    baseline = start(rows, target, seed)
    rows = with_queue(rows, baseline.walls, seed)
    ranking = rank_all(rows, baseline, target, seed, method)
    across = None
    if worst is not typical:
        sides = (
            side(within, ledger, typical, length_ns, target, 2 * seed),
            side(
                window(spans, ledger, worst, length_ns),
                ledger,
                worst,
                length_ns,
                target,
                2 * seed + 1,
            ),
        )
        across = change(*sides, target, (Target(50), target))
    latencies = np.array([segment.target_ns for segment in segments])
    return Segments(
        length_s=length_ns / 1e9,
        segments=tuple(sorted(segments, key=lambda segment: segment.start_ns)),
        too_few=len(found) - len(segments),
        variation=float(latencies.std() / latencies.mean()) if latencies.mean() > 0 else 0.0,
        best=best,
        typical=typical,
        worst=worst,
        within=ranking.causes,
        across=across,
    )


def window(spans: Spans, ledger: Ledger, segment: Segment, length_ns: int) -> Spans:
    """The spans that begin in one segment, with time blocks of their own."""
    table = spans.table
    stop = segment.start_ns + length_ns
    table = table.filter(table.start_ns >= segment.start_ns, table.start_ns < stop)
    power = block_power([length_ns - 1])
    moment = table.start_ns - segment.start_ns
    blocks = ((length_ns - 1) >> power) + 1
    cut = spans_of(spans.engine, table, ledger, moment, blocks, power)
    others = spans.others
    if others is not None:
        others = others.filter(others.start_ns >= segment.start_ns, others.start_ns < stop)
        others = others.mutate(moment=others.start_ns - segment.start_ns)
    return replace(
        cut,
        single=spans.single,
        replayable=spans.replayable and QUEUE in cut.active,
        others=others,
        other_rows=spans.other_rows,
    )


def side(
    spans: Spans, ledger: Ledger, segment: Segment, length_ns: int, target: Target, seed: int
) -> Side:
    """One segment, to be compared with another."""
    unknown = frozenset(cause for cause in CAUSES if ledger.is_null(cause))
    return Side.of(spans, segment.rows, length_ns / 1e9, unknown, target.quantile, seed)


def segments_dict(found: Segments) -> dict[str, Any]:
    """What `--json` prints of the segments."""
    return {
        "length_s": found.length_s,
        "segments": [asdict(segment) for segment in found.segments],
        "too_few": found.too_few,
        "variation": found.variation,
        "best": asdict(found.best),
        "typical": asdict(found.typical),
        "worst": asdict(found.worst),
        "within_typical": [flat(cause) for cause in found.within],
        "typical_to_worst": change_dict(found.across) if found.across else None,
    }
