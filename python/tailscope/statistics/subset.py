"""Rows that are asked for again and again, kept apart in small tables of the engine.

Most questions are about the tail. Of a long ledger the rows that are drawn at random and the time
windows that are replayed are kept with it: of 100 million rows, reading all causes is what takes
longest, and the three are a few rows in a hundred. So one pass serves them all.
"""

from __future__ import annotations

from dataclasses import replace

import ibis

from tailscope.engines import draw
from tailscope.engines.grid import lower_edge
from tailscope.engines.spans import THREAD, Spans, blame_columns, column, dosed, events_column
from tailscope.statistics import replay
from tailscope.statistics.counterfactual import Baseline

#: From so many rows on. Below, a pass is quick, and these rows are a large part of all.
MANY = 2_000_000


def with_subset(spans: Spans, rows: int, baseline: Baseline, floor_bin: int, seed: int) -> Spans:
    """The spans of a ledger of so many rows; if they are many, with those kept apart that are from
    a bin of wall time on, drawn, or replayed."""
    if rows < MANY or spans.in_memory:
        return spans
    lots = draw.draw(spans, baseline.whole, baseline.quantile, seed)
    if lots.all:
        return spans
    wanted = [spans.table.wall_ns >= int(lower_edge(floor_bin)), lots.has(spans.table)]
    if spans.replayable:
        from_bin, windows = replay.first_read(spans, baseline.walls, seed)
        wanted.append(replay.is_read(spans, from_bin, windows))
    names = ["start_ns", "wall_ns", "weight", *blame_columns(spans)]
    names += [name for name in THREAD if name in spans.columns]
    names += [column(name) for name in (*spans.active, *spans.counters)]
    names += [events_column(name) for name in dosed(spans)]
    subset = spans.table.filter(ibis.or_(*wanted)).select(*names, moment=spans.moment)
    kept = spans.engine.keep(subset)
    return replace(spans, subset=replace(spans, table=kept, moment=kept.moment))


def with_tail(spans: Spans, floor_bin: int) -> Spans:
    """The spans with those from a bin of wall time on kept apart; in memory, if they are few."""
    floor_ns = int(lower_edge(floor_bin))
    if spans.in_memory:
        rows = spans.in_memory.where(spans.in_memory.wall >= floor_ns)
        return replace(spans, tail=replace(spans, in_memory=rows, floor_bin=floor_bin))
    table = (spans.subset or spans).table
    slow = table.filter(table.wall_ns >= floor_ns)
    if not spans.subset:
        causes = [column(name) for name in (*spans.active, *spans.counters)]
        causes += [events_column(name) for name in dosed(spans)]
        names = ["wall_ns", "weight", *causes, *blame_columns(spans)]
        slow = spans.engine.keep(slow.select(*names, moment=spans.moment))
    tail = replace(spans, table=slow, moment=slow.moment, subset=None, floor_bin=floor_bin)
    count = int(spans.engine.run(slow.agg(rows=ibis._.count()))["rows"][0])
    return replace(spans, tail=draw.load_if_few(tail, count))
