"""A server's queue, simulated twice from the same arrivals, with its waits and without: what is
predicted from the first must be what happens in the second.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import START_NS
from tailscope import fix, measure
from tailscope.engine import connect
from tailscope.explanation import Explanation
from tailscope.overview import look_over
from tailscope.timed import Timed

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

        def off(since: int, until: int) -> int:
            """How long the thread was off its CPU."""
            overlap = np.minimum(begins + lengths, until) - np.maximum(begins, since)
            return int(np.maximum(overlap, 0).sum())

        def after(moment: int, work: int) -> int:
            """When so much work that begins at a moment is done."""
            for begin, length in self.waits:
                if begin + length <= moment:
                    continue
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


def explained(folder: Path) -> Explanation:
    return tailscope.open(folder).explain("p99")


def predicted(found: Explanation, cause: str) -> float:
    return next(one.predicted.ns for one in found.causes if one.name == cause)


def test_without_its_waits_a_thread_has_no_queue_behind_them_either(make: Make) -> None:
    threads = [thread(tid, 20_000) for tid in (1, 2, 3)]
    truth = float(np.quantile(merged(*threads)["wall_ns"], 0.99))
    held_up = merged(*(hold_up(one, 4 * MILLISECOND, 50 * MILLISECOND) for one in threads))
    found = explained(make(**held_up))
    plain = float(np.quantile(held_up["wall_ns"] - held_up["runqueue_ns"], 0.99))
    assert found.at_target.ns > 30 * truth
    assert plain > 4 * truth
    assert predicted(found, "runqueue") == pytest.approx(truth, rel=0.01)
    assert found.curves["runqueue"].value_at(0.99) == pytest.approx(truth, rel=0.01)


def test_slow_requests_hold_up_those_behind_them(make: Make) -> None:
    usual = thread(1, 40_000)
    truth = float(np.quantile(usual.rows()["wall_ns"], 0.99))
    rows = thread(1, 40_000, slow=0.005).rows()
    found = explained(make(**rows))
    work = rows["wall_ns"] - rows["queue_ns"]
    plain = float(np.quantile(rows["queue_ns"] + np.minimum(work, np.median(work)), 0.99))
    assert found.at_target.ns > 20 * truth
    assert plain > 20 * truth
    assert predicted(found, "running") == pytest.approx(truth, rel=0.05)


def test_spans_that_overlap_in_their_work_are_left_alone(make: Make) -> None:
    """As in a proxy, where one thread has many requests under way: each waits for itself."""
    rng = np.random.default_rng(5)
    count = 20_000
    start = np.cumsum(rng.exponential(20_000, count)).astype(np.int64)
    lock = np.where(rng.random(count) < 0.05, 3 * MILLISECOND, 0)
    rest = rng.integers(900_000, 1_000_000, count)
    found = explained(
        make(
            start_ns=START_NS + start,
            wall_ns=rest + lock,
            lock_ns=lock,
            queue_ns=rng.integers(1, 10, count),
            pid=np.ones(count),
            tid=np.ones(count),
        )
    )
    assert predicted(found, "lock") == pytest.approx(np.quantile(rest, 0.99), rel=0.002)


def test_a_ledger_with_some_requests_only_is_not_replayed(make: Make) -> None:
    rows = hold_up(thread(1, 20_000), 4 * MILLISECOND, 50 * MILLISECOND).rows()
    kept = {name: values[::2] for name, values in rows.items()}
    found = explained(make(weight=np.full(10_000, 2.0), **kept))
    plain = np.quantile(kept["wall_ns"] - kept["runqueue_ns"], 0.99)
    assert predicted(found, "runqueue") == pytest.approx(plain, rel=0.002)


def test_too_many_rows_are_not_replayed_and_it_says_so(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = hold_up(thread(1, 20_000), 4 * MILLISECOND, 50 * MILLISECOND).rows()
    ledger = make(**rows)
    whole = explained(ledger)
    assert whole.replayed and not [note for note in whole.notes if "replayed" in note]
    monkeypatch.setattr(measure, "MOST_ROWS", 19_999)
    found = explained(ledger)
    assert not found.replayed and [note for note in found.notes if "not replayed" in note]
    plain = np.quantile(rows["wall_ns"] - rows["runqueue_ns"], 0.99)
    assert predicted(found, "runqueue") == pytest.approx(plain, rel=0.002)


def test_as_recorded_the_replay_is_what_was_recorded(make: Make) -> None:
    rows = merged(*(hold_up(thread(tid, 5_000), MILLISECOND, 20 * MILLISECOND) for tid in (1, 2)))
    ledger = tailscope.open(make(**rows))
    with connect(ledger) as engine:
        overview, table = look_over(engine, ledger)
        spans = measure.spans_named(engine, table, overview, ledger, "recv..send")
        assert spans.replayable
        whole = Timed.of(measure.walls(spans), spans.blocks).distribution()
        same = fix.relieved(spans, whole, fix.Fix({"runqueue": 1 << 40}))
    assert np.array_equal(same.bins, whole.bins)
    assert same.weights == pytest.approx(whole.weights)
