"""Samples and requests as no recorder wrote them, for the writers that show them over time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from tailscope.engines.measure import Worst
from tailscope.ledger.stacks import Frame, Moments, Stack
from tailscope.present.mean_stacks import UNKNOWN, outermost_first
from tailscope.present.thread_samples import Thread, Timeline, by_thread

HOSTS = ("a", "b", "a")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
CAUSES = st.sampled_from(["running", "lock", "fault", "a cause of tomorrow"])
FRAMES = st.builds(
    Frame, st.sampled_from(["", "main", "put", "größe"]), TEXTS, st.integers(0, 2**63 - 1)
)
STACKS = st.builds(Stack, st.lists(FRAMES, max_size=5).map(tuple), st.booleans())
IDS = st.integers(1, 4)
#: Unix ns near now, so close together that requests overlap.
TIMES = st.integers(1_800_000_000_000_000_000, 1_800_000_000_000_000_040)


@dataclass(frozen=True)
class Sample:
    """A sample as it is in the ledger."""

    ledger: int
    pid: int
    tid: int
    time_ns: int
    ns: int
    cause: str
    stack: int


SAMPLES = st.builds(
    Sample,
    *(st.integers(0, len(HOSTS) - 1), IDS, IDS, TIMES, st.integers(0, 1 << 40), CAUSES),
    st.integers(0, 6),
)
REQUESTS = st.builds(
    Worst,
    start_ns=TIMES,
    wall_ns=st.integers(0, 30),
    identity=st.dictionaries(st.sampled_from(["pid", "tid", "cpu"]), IDS)
    | st.fixed_dictionaries({"id": st.integers(-(2**63), 2**63 - 1), "pid": IDS, "tid": IDS}),
    causes=st.dictionaries(CAUSES, st.integers(0, 1 << 40)),
    culprits=st.dictionaries(CAUSES, TEXTS),
    trace_id=st.none() | st.just("0123456789abcdef" * 2),
)


@dataclass(frozen=True)
class Case:
    """A timeline, and what it was made of."""

    samples: list[Sample]
    requests: list[tuple[int, Worst]]
    stacks: dict[int, Stack]
    shown: Timeline

    def expected(self) -> Counter[tuple[Thread, int, int, str, tuple[str, ...]]]:
        """The thread, time, ns, cause and chain of names of each sample."""
        return Counter(
            (
                Thread(HOSTS[one.ledger], one.pid, one.tid),
                one.time_ns,
                one.ns,
                one.cause,
                tuple(frame.name for frame in self.chain(one.stack)),
            )
            for one in self.samples
        )

    def chain(self, key: int) -> tuple[Frame, ...]:
        """The frames of a stack."""
        return outermost_first(self.stacks[key]) if key in self.stacks else UNKNOWN

    def walls(self) -> Counter[tuple[Thread, int, int]]:
        """The thread, start and wall time of each request."""
        found: Counter[tuple[Thread, int, int]] = Counter()
        for number, one in self.requests:
            pid = one.identity.get("pid", 0)
            thread = Thread(HOSTS[number], pid, one.identity.get("tid", pid))
            found[thread, one.start_ns, one.wall_ns] += 1
        return found


def case(
    samples: list[Sample],
    requests: list[tuple[int, Worst]],
    stacks: dict[int, Stack],
    span: str = "get",
) -> Case:
    """What these samples and requests look like as a timeline."""
    samples = sorted(samples, key=lambda one: one.time_ns)
    columns = {
        name: np.array([getattr(one, name) for one in samples], dtype=np.int64)
        for name in ("ledger", "pid", "tid", "time_ns", "ns", "stack")
    }
    moments = Moments(
        cause=tuple(one.cause for one in samples), stacks=stacks, total=len(samples), **columns
    )
    threads, chains = by_thread(moments, requests, HOSTS)
    shown = Timeline(span, f"p99 of {span}", threads, chains, 1_003_009, {"arch": "x86_64"})
    return Case(samples, requests, stacks, shown)


CASES = st.builds(
    case,
    st.lists(SAMPLES, max_size=12),
    st.lists(st.tuples(st.integers(0, len(HOSTS) - 1), REQUESTS), max_size=8),
    st.dictionaries(st.integers(0, 5), STACKS, max_size=6),
    TEXTS,
)
