"""The rows of a long ledger that are looked at one by one, brought near in one pass.

They are the slow spans, the rows that are drawn at random, and the pieces of time that are
replayed: a few in a hundred. Goal: to read all causes of all rows once for the three of them, for
that is what takes longest of 100 million rows. What is kept is what the slow spans alone would be,
and a few rows more.
"""

from __future__ import annotations

from dataclasses import replace

import ibis

from tailscope import replay, sample
from tailscope.counterfactual import Baseline
from tailscope.grid import lower_edge
from tailscope.measure import THREAD, Spans, column, culprit_columns

#: From so many rows on. Below, a pass is quick, and these rows are a large part of all.
MANY = 2_000_000


def with_near(spans: Spans, rows: int, baseline: Baseline, floor_bin: int, seed: int) -> Spans:
    """The spans of a ledger of so many rows; if they are many, with those kept apart that are from
    a bin of wall time on, drawn, or replayed."""
    if rows < MANY or spans.here:
        return spans
    lots = sample.draw(spans, baseline.whole, baseline.quantile, seed)
    if lots.all:
        return spans
    wanted = [spans.table.wall_ns >= int(lower_edge(floor_bin)), lots.has(spans.table)]
    if spans.replayable:
        from_bin, pieces = replay.first_read(spans, baseline.walls, seed)
        wanted.append(replay.is_read(spans, from_bin, pieces))
    names = ["start_ns", "wall_ns", "weight", *culprit_columns(spans)]
    names += [name for name in THREAD if name in spans.columns]
    names += [column(name) for name in (*spans.active, *spans.counters)]
    rows_near = spans.table.filter(ibis.or_(*wanted)).select(*names, moment=spans.moment)
    kept = spans.engine.keep(rows_near)
    return replace(spans, near=replace(spans, table=kept, moment=kept.moment))
