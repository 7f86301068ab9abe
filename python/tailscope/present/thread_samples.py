"""Samples by thread and time beside the slow requests, for programs that draw a recording's time.

Each sample has its cause, the time that it stands for, and its stack. Of the explained spans' name,
all samples are there, and the slow spans as requests with the time of each cause. Times are ns;
moments are Unix ns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tailscope.engines.measure import Worst
from tailscope.engines.slowest import slowest
from tailscope.ledger.ledger import Ledger, part
from tailscope.ledger.stacks import Moments, StackTables
from tailscope.present.frame_tables import Numbered
from tailscope.present.mean_stacks import UNKNOWN, Chain, chains_of, code_of
from tailscope.statistics.explanation import Explanation

#: More samples and requests than these make files that browsers open slowly. The slowest spans'
#: samples count first.
MOST_SAMPLES, MOST_REQUESTS = 500_000, 10_000


class Thread(NamedTuple):
    """A thread of one of the machines that were recorded."""

    host: str
    pid: int
    tid: int


@dataclass
class ThreadSamples:
    """A thread's samples in order of time, and the slow requests that it worked for."""

    time_ns: list[int] = field(default_factory=list)
    ns: list[int] = field(default_factory=list)
    #: Places in `Timeline.stacks`.
    stack: list[int] = field(default_factory=list)
    #: In order of their start; of two with one start, the longer first.
    requests: list[Worst] = field(default_factory=list)


@dataclass(frozen=True)
class Timeline:
    """What the programs draw."""

    span: str
    title: str
    threads: dict[Thread, ThreadSamples]
    #: Causes with chains of frames, each once.
    stacks: tuple[tuple[str, Chain], ...]
    #: The time for which most samples stand.
    period_ns: int
    #: `machine` of ledger.json.
    machine: dict[str, Any] = field(default_factory=dict)
    #: What is not in it, a sentence each.
    notes: tuple[str, ...] = ()

    @cached_property
    def hosts(self) -> list[str]:
        """The machines, in the order of their names."""
        return sorted({thread.host for thread in self.threads})

    @cached_property
    def causes(self) -> list[str]:
        """The causes of samples and requests."""
        found = {cause for cause, _ in self.stacks}
        for one in self.threads.values():
            found |= {cause for request in one.requests for cause in request.causes}
        return sorted(found)

    @cached_property
    def extent_ns(self) -> tuple[int, int]:
        """From the first moment to the last one."""
        starts, ends = [], []
        for one in self.threads.values():
            starts += [*one.time_ns[:1], *(request.start_ns for request in one.requests[:1])]
            ends += [at + ns for at, ns in zip(one.time_ns, one.ns, strict=True)]
            ends += [request.start_ns + request.wall_ns for request in one.requests]
        return min(starts, default=0), max(ends, default=0)


def timeline(ledger: Ledger, explanation: Explanation) -> Timeline:
    """The samples and the slow spans of the name that was explained."""
    found = code_of(explanation)
    name = explanation.span.name
    tables = StackTables(ledger)
    try:
        moments = tables.moments(name, MOST_SAMPLES)
    finally:
        tables.close()
    requests = slowest(ledger, name, found.tail_from_ns, MOST_REQUESTS + 1)
    hosts = [recording.host for recording in ledger.recordings]
    threads, stacks = by_thread(moments, requests[:MOST_REQUESTS], hosts)
    return Timeline(
        span=name,
        title=f"{explanation.target.name} of {name}",
        threads=threads,
        stacks=stacks,
        period_ns=found.sampling.period_ns,
        machine=part(ledger.recordings[0].about, "machine"),
        notes=tuple(left_out(moments, len(requests))),
    )


def by_thread(
    moments: Moments, requests: Sequence[tuple[int, Worst]], hosts: Sequence[str]
) -> tuple[dict[Thread, ThreadSamples], tuple[tuple[str, Chain], ...]]:
    """The threads in the order of their ids, and the stacks that their samples refer to.

    `requests` come after the numbers of their recordings, and `hosts` are the recordings'.
    """
    threads: dict[Thread, ThreadSamples] = {}
    chains = chains_of(moments.stacks)
    stacks: Numbered[tuple[str, Chain]] = Numbered()
    places: dict[tuple[str, int], int] = {}
    columns = (moments.ledger, moments.pid, moments.tid, moments.time_ns, moments.ns, moments.stack)
    rows = zip(*(column.tolist() for column in columns), moments.cause, strict=True)
    for number, pid, tid, time_ns, ns, key, cause in rows:
        place = places.get((cause, key))
        if place is None:
            place = places[cause, key] = stacks[cause, chains.get(key, UNKNOWN)]
        its = threads.setdefault(Thread(hosts[number], pid, tid), ThreadSamples())
        its.time_ns.append(time_ns)
        its.ns.append(ns)
        its.stack.append(place)
    for number, request in sorted(requests, key=lambda one: (one[1].start_ns, -one[1].wall_ns)):
        pid = request.identity.get("pid", 0)
        thread = Thread(hosts[number], pid, request.identity.get("tid", pid))
        threads.setdefault(thread, ThreadSamples()).requests.append(request)
    return {thread: threads[thread] for thread in sorted(threads)}, tuple(stacks)


def left_out(moments: Moments, requests: int) -> list[str]:
    """What is not in the file."""
    notes = []
    shown = len(np.asarray(moments.time_ns))
    if shown < moments.total:
        notes.append(
            f"only {shown:,} of {moments.total:,} samples are in it: those of the slowest spans"
        )
    if requests > MOST_REQUESTS:
        notes.append(f"only the {MOST_REQUESTS:,} slowest requests are in it")
    return notes
