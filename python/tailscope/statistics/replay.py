"""The queue behind a wait: requests replayed in the order in which their thread answered them.

A server's thread that waits 4 ms for its CPU makes each request wait that comes meanwhile, and then
each of them for those before it. Taking the 4 ms away from each span leaves that queue in; it is
gone when the thread is not held up. What the spans' ends would have been follows from Lindley's
recursion (The theory of queues with a single server, 1952): a thread ends a request one service
after its data was there and the request before it had ended, whichever is later.

    end[i] = max(ready[i], end[i-1]) + service[i]

As recorded that holds by definition of `service`. A fix shortens services, and the recursion says
when each request would have ended then. Unrolled it is a cumulative sum and a running maximum.

It needs spans from when their data was ready to their answer, all of them, and a thread that
answers one after the other. Spans of which more than a quarter of the work was done before the one
before them ended are not of that kind, and are left out. So are spans that another thread answered
than received: which thread was busy with them is not known. So are spans faster than the median:
nobody waits behind them who counts for the tail.

Requests of other names may have had the same threads. They are replayed with the spans, and count
for nothing else.

A thread is busy from the moment when the connection is accepted to the last send. What comes before
(`accept`) and after (`tcp`) makes nobody else wait: the recursion passes over both.

Goal: some fifty fixes an explanation, each along all rows of a thread. Rejected: windows in the
engine, which sort the rows anew for each fix (60 s and 2.7 GiB for 10 million rows). Chosen: the
rows are loaded once, of at most `QUOTA` spans, in order of their threads; of a longer ledger those
in `time_windows`. The recursion needs rows back to the last time that a thread was idle, so a
window with a lead-in is exact unless the thread was busy all the while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tailscope.engines.engine import filled
from tailscope.engines.grid import bins_of, lower_edge
from tailscope.engines.sample import Sample
from tailscope.engines.spans import THREAD, Spans, column, dosed, events_column
from tailscope.engines.timed import Counts, Timed
from tailscope.ledger.causes import QUEUE, RUNNING
from tailscope.ledger.ledger import CHAIN
from tailscope.statistics.answers import (
    AFTER,
    BEFORE,
    LEAVES,
    OFF_CPU,
    Answers,
    Times,
    changes,
    some,
    usual_by_kind,
)
from tailscope.statistics.takers import waited_for
from tailscope.statistics.time_windows import TimeWindows
from tailscope.statistics.transfer import transferred

if TYPE_CHECKING:
    from ibis.expr.types import BooleanValue, Column, Table

    from tailscope.statistics.fix import Fix

#: Spans that are replayed at most, about; those below the median among them are not read.
QUOTA = 1_000_000


@dataclass(frozen=True)
class Queued:
    """All spans from the median up, or those in time windows, with the queues that they stood in.

    A row's weight is 0 in a window's lead-in, and of another name.
    """

    answers: Answers
    #: The lowest bin of wall time among them.
    from_bin: int
    #: The part of all spans that was replayed, 0 to 1, and in how many windows of how many ns.
    share: float = 1.0
    windows: int = 1
    length_ns: int = 0
    #: What `others` found, by bin.
    by_bin: dict[int, Sample] = field(default_factory=dict)

    @cached_property
    def queues(self) -> tuple[Answers, Places]:
        """Those that waited for each other, one queue after the other."""
        waiting = self.answers.of_one_thread().one_by_one().waiting()
        return waiting, Places.of(waiting)

    def knowing(self, causes: Sequence[str]) -> Queued:
        """Only the spans in which some causes were measured."""
        answers = self.answers.where(self.answers.rows.where_known(causes))
        answers = replace(answers, row=np.arange(len(answers.row)))
        return replace(self, answers=answers, by_bin={})

    @property
    def cut_share(self) -> float:
        """Of the spans that waited, the part (0 to 1) whose queue began before the window did."""
        waiting, places = self.queues
        waited = waiting.rows.weight * (places.late > 0)
        cut = float(waited[waiting.opened[places.begin]].sum())
        return cut / float(waited.sum()) if cut else 0.0

    def gone(self, walls: Timed, fix: Fix, floor_bin: int) -> Timed:
        """The wall times with the queue gone that a fix takes along, from those with it.

        Those below `floor_bin` are summed up beneath it.
        """
        waiting, _ = self.queues

        def alone(others: Sample) -> Times:
            return others.wall - sum(fix.more_in(others).values(), np.zeros_like(others.wall))

        return self.moved(walls, self.replayed(waiting.more(fix)), alone, floor_bin)

    def without(self, walls: Timed, names: Sequence[str]) -> Timed:
        """The wall times if no span had waited for requests of some other names."""
        replayed = self.replayed_without(names)
        return self.moved(walls, replayed, lambda others: others.wall, self.from_bin)

    def moved(
        self,
        walls: Timed,
        replayed: tuple[Times, Times],
        alone_of: Callable[[Sample], Times],
        floor_bin: int,
    ) -> Timed:
        """The wall times, of which those that waited come to where the replay has them."""
        waiting, _ = self.queues
        if self.share == 1:
            before, after = (np.maximum(bins_of(ns), floor_bin - 1) for ns in replayed)
            other = (before != after) & (waiting.rows.weight > 0)
            block, ones = waiting.rows.block[other], np.ones(int(other.sum()))
            return walls.moved(*(Counts(block, bins[other], ones) for bins in (before, after)))
        lowest = max(self.from_bin, floor_bin)
        others = self.others(lowest)
        alone, (plain, replay) = alone_of(others), replayed
        counted = waiting.rows.weight > 0
        block = np.append(others.block, waiting.rows.block[counted])
        before = np.append(alone, plain[counted])
        after = np.append(alone, replay[counted])
        chosen = before >= lower_edge(lowest)
        before, after = (np.maximum(bins_of(ns[chosen]), floor_bin - 1) for ns in (before, after))
        return transferred(walls, lowest, block[chosen], before, after)

    def others(self, lowest: int) -> Sample:
        """The counted rows from a bin of wall time on that waited for nobody, nor anybody for them.

        A fix makes none of them slower, so those below the bin stay there.
        """
        if lowest not in self.by_bin:
            rows = self.answers.rows
            chosen = (rows.weight > 0) & (rows.wall >= lower_edge(lowest))
            chosen[self.queues[0].row] = False
            self.by_bin[lowest] = rows.where(chosen)
        return self.by_bin[lowest]

    def replayed(self, more: Mapping[str, Times]) -> tuple[Times, Times]:
        """The wall times of those that waited, without what a fix takes of each cause: of them
        alone, and in the order of their threads."""
        waiting, places = self.queues
        wall = waiting.rows.wall
        gone = sum(more.values(), np.zeros_like(wall))
        off_gain = some(more, OFF_CPU, len(wall))
        aside_gain = some(more, (BEFORE, AFTER), len(wall))
        if waiting.elsewhere is not None:
            aside_gain = np.where(waiting.elsewhere > 0, gone, aside_gain)
            off_gain = np.where(waiting.elsewhere > 0, 0, off_gain)
        on_gain = gone - off_gain - aside_gain
        gain = np.minimum(on_gain + np.minimum(off_gain, places.own_off), places.own)
        aside = wall - (waiting.end - waiting.ready) - aside_gain
        plain = wall - gone
        # The first of a queue waited for nobody.
        queued = places.walls(places.own - gain) + aside
        return plain, np.where(places.late > 0, queued, plain)

    def replayed_without(self, names: Sequence[str]) -> tuple[Times, Times]:
        """The wall times of those that waited: as they were, and if requests of some other names
        had taken no time of their threads."""
        waiting, places = self.queues
        wall = waiting.rows.wall
        kinds = [1 + waiting.names.index(name) for name in names]
        services = np.where(np.isin(waiting.kind, kinds), 0, places.own)
        queued = places.walls(services) + wall - (waiting.end - waiting.ready)
        return wall, np.where(places.late > 0, queued, wall)


@dataclass(frozen=True)
class Places:
    """Each span's place in its queue; a queue begins when its thread was idle. Times in ns."""

    late: Times
    own: Times
    #: Off-CPU time, but that up to the end of the one before: it belongs to that one's service.
    own_off: Times
    #: The row with which the queue begins, and how long after it the span was ready.
    begin: NDArray[np.intp]
    ready: Times
    #: Each queue's place on an axis on which they follow each other.
    base: Times

    @classmethod
    def of(cls, line: Answers) -> Places:
        """Of rows in the order of their threads."""
        late = line.late()
        opens = late == 0
        begins = np.flatnonzero(opens)
        queue = np.cumsum(opens) - 1
        begin = begins[queue]
        ready = line.ready - line.ready[begin]
        lengths = np.maximum.reduceat(ready, begins) + 1 if len(begins) else ready
        base = (np.cumsum(lengths) - lengths)[queue]
        before = np.maximum(late - line.rows.values[QUEUE], 0)
        return cls(late, line.own(), np.maximum(line.off() - before, 0), begin, ready, base)

    def walls(self, services: Times) -> Times:
        """Wall times with other services, none of them longer than it was."""
        done = np.cumsum(services)
        before = done - services
        before -= before[self.begin]
        latest = np.maximum.accumulate(self.ready - before + self.base) - self.base
        return before + services + latest - self.ready


def with_queue(spans: Spans, walls: Timed, seed: int) -> Spans:
    """The spans, whose wall times are given, with those that wait for each other.

    Without them if that is not known, or if so many spans begin at one moment that no time window
    is small enough.
    """
    if not spans.replayable:
        return spans
    from_bin, windows = first_read(spans, walls, seed)
    found = read(spans.subset or spans, from_bin, windows)
    if windows is None:
        return replace(spans, queued=Queued(in_order(spans, found, None), from_bin))
    share = QUOTA / (float(walls.weight.sum()) + spans.other_rows)
    slow = float(walls.weight[:, from_bin - walls.first :].sum())
    for _ in range(4):
        if len(found["wall_ns"]) <= QUOTA:
            answers = in_order(spans, found, windows)
            drawn = int(np.count_nonzero(answers.rows.weight)) / slow
            queued = Queued(answers, from_bin, drawn, spans.blocks, windows.length)
            return replace(spans, queued=queued)
        share /= 4
        windows = TimeWindows.reading(share, spans.power, seed)
        found = read(spans, from_bin, windows)
    return spans


def first_read(spans: Spans, walls: Timed, seed: int) -> tuple[int, TimeWindows | None]:
    """From which bin of wall time on rows are read, and in which windows; None: in all of the time.

    Should the rows in these windows be too many, smaller ones are read.
    """
    share = QUOTA / (float(walls.weight.sum()) + spans.other_rows)
    windows = TimeWindows.reading(share, spans.power, seed) if share < 1 else None
    return walls.distribution().bin_at(0.5), windows


def is_read(spans: Spans, from_bin: int, windows: TimeWindows | None) -> BooleanValue:
    """Whether a row is from a bin of wall time on, and in the windows."""
    slow = spans.table.wall_ns >= int(lower_edge(from_bin))
    return slow & windows.reads(spans.moment) if windows else slow


def read(spans: Spans, from_bin: int, windows: TimeWindows | None) -> dict[str, NDArray]:
    """The rows from a bin of wall time on, in the windows, and all of other names: a bounded
    number, one too many if they are too many. `kind` is 0 but for other names, of which it is the
    place in `names`, from 1 on."""
    found = read_columns(spans, spans.table.filter(is_read(spans, from_bin, windows)), windows)
    found["kind"] = np.zeros(len(found["wall_ns"]), dtype=np.intp)
    if spans.others is None:
        return found | {"names": np.zeros(0, dtype=str)}
    rest = replace(spans, table=spans.others, moment=spans.others.moment)
    chosen = rest.table.filter(windows.reads(rest.moment)) if windows else rest.table
    others = read_columns(rest, chosen, windows, span=rest.table.span)
    names, kind = np.unique(others.pop("span").astype(str), return_inverse=True)
    others["kind"] = kind.ravel() + 1
    both = {name: np.ma.concatenate([found[name], others[name]]) for name in found}
    return both | {"names": names}


def replayed_causes(spans: Spans) -> tuple[str, ...]:
    """The causes that are read: with other names also those that say how long they had a thread."""
    if spans.others is None:
        return spans.active
    needed = (*OFF_CPU, BEFORE, AFTER, *LEAVES)
    more = [name for name in needed if name not in spans.active and column(name) in spans.columns]
    return (*spans.active, *more)


def read_columns(
    spans: Spans, chosen: Table, windows: TimeWindows | None, **more: Column
) -> dict[str, NDArray]:
    """What is read of some rows of the spans' table."""
    table = spans.table
    if windows:
        chosen = chosen.limit(QUOTA + 1)
    causes = {name: table[column(name)] for name in replayed_causes(spans)}
    causes |= {events_column(name): table[events_column(name)] for name in dosed(spans)}
    return spans.engine.run(
        chosen.select(
            *("start_ns", "wall_ns", *THREAD),
            moment=spans.moment,
            woke_idle=spans.woke_idle.cast("int64"),
            **causes,
            **more,
        )
    )


def in_order(spans: Spans, found: dict[str, NDArray], windows: TimeWindows | None) -> Answers:
    """Rows of the engine in the order of their threads."""
    start, wall, moment = (
        filled(found[name]).astype(np.int64) for name in ("start_ns", "wall_ns", "moment")
    )
    threads = [filled(found[name]).astype(np.int64) for name in THREAD]
    # Ties in any order would be another order on each engine.
    after = filled(found[AFTER]).astype(np.int64) if AFTER in found else np.zeros_like(wall)
    elsewhere = np.zeros_like(wall)
    if follows(spans):
        ledger, pid, tid = threads
        began = start + filled(found[QUEUE]).astype(np.int64)
        process = ledger << 32 | pid
        values = {name: filled(found[name]) for name in LEAVES if name in found}
        stays = some(values, LEAVES, len(wall)) == 0
        threads[2], elsewhere = waited_for(process, tid, start, began, start + wall - after, stays)
        after = after + elsewhere
    order = np.lexsort((filled(found[QUEUE]), start, start + wall - after, *threads))
    wall, moment = wall[order], moment[order]
    causes = replayed_causes(spans)
    values = {name: filled(found[name])[order].astype(np.int64) for name in causes}
    known = {
        name: ~np.ma.getmaskarray(found[name])[order]
        for name in spans.active
        if name in spans.partial
    }
    rest = wall - sum(values.values(), np.zeros_like(wall))
    block = moment >> spans.power
    kind = filled(found["kind"])[order]
    weight = (kind == 0).astype(float)
    first = np.logical_or.reduce([changes(thread[order]) for thread in threads])
    opened = np.zeros(len(wall), dtype=bool)
    if windows:
        weight = weight * windows.has(moment)
        first |= changes(block)
        opened = first & (values[QUEUE] > 0)
    rows = Sample(
        wall=wall,
        weight=weight,
        values=values | {RUNNING: np.maximum(rest, 0)},
        known=known,
        rows=len(wall),
        block=block,
        events={
            name: filled(found[events_column(name)])[order].astype(np.int64)
            for name in dosed(spans)
        },
        woke_idle=filled(found["woke_idle"])[order].astype(bool),
    )
    usual = usual_by_kind(rows.values, kind)
    row = np.arange(len(wall))
    elsewhere = elsewhere[order]
    names = tuple(found["names"].tolist())
    followed = follows(spans)
    return Answers(rows, start[order], first, opened, row, kind, usual, followed, elsewhere, names)


def follows(spans: Spans) -> bool:
    """Whether the spans are of the source `request`: only those have a connection."""
    return spans.columns.issuperset(CHAIN)
