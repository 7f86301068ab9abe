"""Rows of threads that answer requests in the order in which they came, as a recorder has them."""

from __future__ import annotations

from bisect import bisect
from dataclasses import dataclass, field

import numpy as np
from explain_synthetic import START_NS

MILLISECOND = 1_000_000


@dataclass
class Thread:
    """One thread that answers requests in the order in which they came."""

    tid: int
    ready: np.ndarray
    service: np.ndarray
    #: Times in which the thread waits for its CPU: begins and lengths.
    waits: list[tuple[int, int]] = field(default_factory=list)

    def rows(self) -> dict[str, np.ndarray]:
        """What a recorder would have written of all requests."""
        begins = np.array([begin for begin, _ in self.waits] or [1 << 61])
        lengths = np.array([length for _, length in self.waits] or [0])
        ends = (begins + lengths).tolist()

        def off(since: int, until: int) -> int:
            """How long the thread was off its CPU."""
            overlap = np.minimum(begins + lengths, until) - np.maximum(begins, since)
            return int(np.maximum(overlap, 0).sum())

        def after(moment: int, work: int) -> int:
            """When so much work that begins at a moment is done."""
            for begin, length in self.waits[bisect(ends, moment) :]:
                if begin >= moment + work:
                    break
                work -= max(begin - moment, 0)
                moment = begin + length
            return moment + work

        found: dict[str, list[int]] = {name: [] for name in ("wall_ns", "runqueue_ns", "queue_ns")}
        free = 0
        for ready, work in zip(self.ready.tolist(), self.service.tolist(), strict=True):
            begun = after(max(ready, free), 0)
            free = after(begun, work)
            found["wall_ns"].append(free - ready)
            found["runqueue_ns"].append(off(ready, free))
            found["queue_ns"].append(begun - ready - off(ready, begun))
        columns = {name: np.array(values) for name, values in found.items()}
        columns["start_ns"] = START_NS + self.ready
        columns["tid"] = columns["pid"] = np.full(len(self.ready), self.tid)
        columns["runqueue_n"] = (columns["runqueue_ns"] > 0).astype(np.int64)
        return columns


def thread(tid: int, requests: int, slow: float = 0.0) -> Thread:
    """Requests at 20 % of a thread's time, of 20 µs and, a share of them, 2 ms."""
    rng = np.random.default_rng(tid)
    ready = np.cumsum(rng.exponential(100_000, requests)).astype(np.int64)
    service = rng.normal(20_000, 1_000, requests).astype(np.int64)
    service[rng.random(requests) < slow] = 2 * MILLISECOND
    return Thread(tid, ready, service)


def hold_up(one: Thread, length_ns: int, every_ns: int) -> Thread:
    """The thread with waits for its CPU, at random times that don't overlap."""
    rng = np.random.default_rng(one.tid + 1000)
    last = int(one.ready[-1])
    begins = np.arange(every_ns, last, every_ns) + rng.integers(0, every_ns // 2, last // every_ns)
    one.waits = [(int(begin), length_ns) for begin in begins]
    return one


def merged(*threads: Thread) -> dict[str, np.ndarray]:
    """All threads' rows in order of time."""
    each = [one.rows() for one in threads]
    rows = {name: np.concatenate([one[name] for one in each]) for name in each[0]}
    order = np.argsort(rows["start_ns"], kind="stable")
    return {name: values[order] for name, values in rows.items()}
