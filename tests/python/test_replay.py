"""A server's queue, simulated twice from the same arrivals, with its waits and without: what is
predicted from the first must be what happens in the second.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from explain_synthetic import START_NS
from queue_synthetic import MILLISECOND, Thread, hold_up, merged, thread
from tailscope.engines.connect import connect
from tailscope.engines.overview import look_over
from tailscope.engines.sample import Sample
from tailscope.engines.spans import Spans, spans_named
from tailscope.ledger.ledger import CHAIN
from tailscope.statistics import answers, counterfactual, replay
from tailscope.statistics.counterfactual import Baseline
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.fix import Fix
from tailscope.statistics.fixed_walls import fixed
from tailscope.statistics.ranking import start
from tailscope.statistics.target import Target
from tailscope.statistics.time_windows import TimeWindows


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


def test_requests_of_other_names_are_part_of_the_queue(make: Make) -> None:
    """A request waits behind whatever its thread does, by whatever name."""
    threads = [thread(tid, 20_000) for tid in (1, 2, 3)]
    rare = np.arange(60_000) * 2_654_435_761 % 2**32 < 2**32 // 10
    truth = float(np.quantile(merged(*threads)["wall_ns"][rare], 0.99))
    held_up = merged(*(hold_up(one, 4 * MILLISECOND, 50 * MILLISECOND) for one in threads))
    is_rare = "row * 2654435761 % 4294967296 < 429496729"
    name = f"if({is_rare}, 'GET /rare', 'GET /usual')"
    ledger = rewrite(
        make(**held_up), f"SELECT * EXCLUDE row REPLACE ({name} AS span) FROM {{rows}}"
    )
    found = tailscope.open(ledger).explain("p99", span="GET /rare")
    assert predicted(found, "runqueue") == pytest.approx(truth, rel=0.05)


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


@contextmanager
def opened(ledger: Path) -> Iterator[tuple[Spans, Baseline]]:
    """The spans of a ledger, without their queues, and p99 as it is."""
    whole = tailscope.open(ledger)
    with connect(whole) as engine:
        overview, table = look_over(engine, whole)
        spans = spans_named(engine, table, overview, whole, "recv..send")
        assert spans.replayable
        yield spans, start(spans, Target(99), 1)


def often_held_up() -> dict[str, np.ndarray]:
    """4 s of a thread that waits 1 ms for its CPU each 12.5 ms: some 320 queues."""
    return hold_up(thread(1, 40_000), MILLISECOND, 12_500_000).rows()


def test_pieces_agree_with_the_whole_within_their_interval(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Fix({"runqueue": 0})
    with opened(make(**often_held_up())) as (spans, baseline):
        whole = replay.with_queue(spans, baseline.walls, 1)
        expected = counterfactual.without(whole, baseline, waits).predicted.ns
        assert counterfactual.without(spans, baseline, waits).predicted.ns > 4 * expected
        monkeypatch.setattr(replay, "QUOTA", 10_000)
        found = []
        for seed in range(1, 11):
            part = replay.with_queue(spans, baseline.walls, seed)
            assert part.queued is not None
            assert 0.1 < part.queued.share < 0.3
            assert part.queued.cut_share < 0.05
            found.append(counterfactual.without(part, baseline, waits).predicted)
    held = [one.lo <= expected <= one.hi for one in found]
    assert sum(held) >= 9
    assert len({one.ns for one in found}) > 5
    assert np.mean([one.ns for one in found]) == pytest.approx(expected, rel=0.1)


def test_of_many_rows_pieces_are_replayed_and_it_says_so(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = float(np.quantile(thread(1, 40_000).rows()["wall_ns"], 0.99))
    ledger = make(**often_held_up())
    whole = explained(ledger)
    assert whole.replayed_share == 1.0
    assert not [note for note in whole.notes if "replayed" in note]
    monkeypatch.setattr(replay, "QUOTA", 20_000)
    found = explained(ledger)
    assert 0.3 < found.replayed_share < 0.5
    assert json.loads(json.dumps(found.to_dict()))["method"]["replayed"] is True
    assert [note for note in found.notes if "time windows of 6.71 ms, drawn at random" in note]
    cause = next(one for one in found.causes if one.name == "runqueue")
    assert cause.predicted.lo <= usual <= cause.predicted.hi
    assert predicted(found, "runqueue") == pytest.approx(predicted(whole, "runqueue"), rel=0.2)


def test_each_span_of_the_pieces_is_counted_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that waited and the others; also where some don't know a cause."""
    monkeypatch.setattr(replay, "QUOTA", 5_000)
    rows = hold_up(thread(1, 20_000), MILLISECOND, 12_500_000).rows()
    ledger = make(io_ns=np.arange(20_000) % 7, **rows)
    gone = "CASE WHEN row // 100 % 3 > 0 THEN io_ns END AS io_ns"
    with opened(rewrite(ledger, f"SELECT * EXCLUDE row REPLACE ({gone}) FROM {{rows}}")) as (
        spans,
        baseline,
    ):
        whole = replay.with_queue(spans, baseline.walls, 1).queued
    assert whole is not None
    for queued in (whole, whole.knowing(("io",))):
        waiting, _ = queued.queues
        counted = np.count_nonzero(queued.answers.rows.weight)
        others = queued.others(queued.from_bin)
        assert len(others.wall) > 100
        assert np.count_nonzero(waiting.rows.weight) > 100
        assert len(others.wall) + np.count_nonzero(waiting.rows.weight) == counted


def test_a_queue_from_before_its_piece_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of 100 ms, and pieces of 8."""
    rows = hold_up(thread(1, 40_000), 100 * MILLISECOND, 500 * MILLISECOND).rows()
    monkeypatch.setattr(replay, "QUOTA", 20_000)
    found = explained(make(**rows))
    assert [note for note in found.notes if "waited since before the window's start" in note]


def test_rows_that_begin_at_once_are_not_replayed_and_it_says_so(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No piece of time has few enough of them; what comes here stays bounded."""
    monkeypatch.setattr(replay, "QUOTA", 500)
    rows = hold_up(thread(1, 4_000), 4 * MILLISECOND, 50 * MILLISECOND).rows()
    rows["start_ns"] = np.full(4_000, START_NS)
    found = explained(make(**rows))
    assert found.replayed_share == 0.0
    assert [note for note in found.notes if "to replay the queue" in note]


def test_pieces_are_the_same_length_in_each_block_and_lead_in_to_each() -> None:
    power, blocks = 20, 50
    windows = TimeWindows.reading(0.25, power, 7)
    moment = np.arange(0, blocks << power, 97, dtype=np.int64)
    has, reads = windows.has(moment), windows.reads(moment)
    assert reads[has].all()
    assert reads.mean() == pytest.approx(0.25, rel=0.01)
    inside = np.bincount(moment[has] >> power, minlength=blocks) * 97
    assert np.allclose(inside, windows.length, atol=2 * 97)
    begins = [int(windows.start(np.array([block]))[0]) for block in range(blocks)]
    assert len(set(begins)) > blocks / 2
    assert min(begins) < 0.2 * (1 << power) and max(begins) > 0.6 * (1 << power)
    for block in range(blocks):
        begin = (block << power) + begins[block]
        assert windows.reads(np.arange(begin - windows.lead, begin)).all()


def test_as_recorded_the_replay_is_what_was_recorded(make: Make) -> None:
    rows = merged(*(hold_up(thread(tid, 5_000), MILLISECOND, 20 * MILLISECOND) for tid in (1, 2)))
    with opened(make(**rows)) as (spans, baseline):
        spans = replay.with_queue(spans, baseline.walls, 1)
        whole = baseline.whole
        same = fixed(spans, baseline.walls, Fix({"runqueue": 1 << 40})).distribution()
    assert np.array_equal(same.bins, whole.bins)
    assert same.weights == pytest.approx(whole.weights)


def test_the_recursion_is_lindleys() -> None:
    """Against a loop, for three threads with services of any length."""
    rng = np.random.default_rng(3)
    rows = merged(*(thread(tid, 3_000, slow=0.02) for tid in (1, 2, 3)))
    start_ns, wall, tid = rows["start_ns"], rows["wall_ns"], rows["tid"]
    order = np.lexsort((start_ns, start_ns + wall, tid))
    start_ns, wall, tid = start_ns[order], wall[order], tid[order]
    first = answers.changes(tid)
    sample = Sample(wall, np.ones(len(wall)), {"queue": np.zeros_like(wall)}, {}, len(wall))
    row, kind = np.arange(len(wall)), np.zeros(len(wall), dtype=np.intp)
    line = answers.Answers(sample, start_ns, first, first & False, row, kind, {})
    places = replay.Places.of(line)
    services = (places.own * rng.random(len(wall))).astype(np.int64)
    expected, end = [], 0
    for i in range(len(wall)):
        end = max(int(start_ns[i]), 0 if first[i] else end) + int(services[i])
        expected.append(end - int(start_ns[i]))
    assert (places.late > 0).sum() > 500
    assert places.walls(services).tolist() == expected


def test_a_fix_leaves_what_is_usual_for_another_name() -> None:
    """Its requests always wait for a database: that is not what is taken away."""
    network = np.array([0, 2, 3, 3, 3, 7]) * MILLISECOND
    wall, kind = network + 1000, np.array([0, 0, 1, 1, 1, 1])
    sample = Sample(wall, (kind == 0) * 1.0, {"network": network}, {}, len(wall))
    usual = answers.usual_by_kind(sample.values, kind)
    row = np.arange(len(wall))
    line = answers.Answers(sample, row, row == 0, row < 0, row, kind, usual)
    taken = line.more(Fix({"network": 1 * MILLISECOND}))["network"]
    assert taken.tolist() == [0, 1 * MILLISECOND, 0, 0, 0, 4 * MILLISECOND]


@pytest.mark.parametrize("followed", [False, True])
def test_a_request_that_waits_elsewhere_does_not_hold_up_its_thread(followed: bool) -> None:
    """An event loop gave the last one to a pool, where it slept, and went on with others."""
    start_ns = np.array([0, 2, 4, 1]) * MILLISECOND
    wall = np.array([1, 1, 1, 6]) * MILLISECOND
    sleep = np.array([0, 0, 0, 5]) * MILLISECOND
    values = {"queue": np.zeros_like(wall), "sleep": sleep}
    sample = Sample(wall, np.ones(4), values, {}, 4, np.zeros(4, dtype=np.int64))
    row = np.arange(4)
    line = answers.Answers(sample, start_ns, row == 0, row < 0, row, row * 0, {}, followed)
    kept = line.one_by_one().row.tolist()
    assert kept == ([0, 1, 2] if followed else [0, 1, 2, 3])


def test_a_followed_request_that_queued_is_replayed() -> None:
    start_ns, wall = np.array([0, 1]) * MILLISECOND, np.array([5, 6]) * MILLISECOND
    values = {"queue": np.array([0, 4]) * MILLISECOND, "sleep": np.array([4, 1]) * MILLISECOND}
    sample = Sample(wall, np.ones(2), values, {}, 2, np.zeros(2, dtype=np.int64))
    row = np.arange(2)
    line = answers.Answers(sample, start_ns, row == 0, row < 0, row, row * 0, {}, followed=True)
    assert len(line.one_by_one().row) == 2


def replayed_whole(ledger: Path) -> replay.Queued:
    """All rows of a ledger, fast ones too, with the queues that they stood in."""
    with opened(ledger) as (spans, _):
        found = replay.read(spans, 0, None)
        return replay.Queued(replay.in_order(spans, found, None), 0)


def with_asides(one: Thread, tcp: np.ndarray, accept: np.ndarray) -> dict[str, np.ndarray]:
    """The thread's rows, with a wait before each request and one after it that hold up nobody."""
    columns = one.rows()
    columns["start_ns"] = columns["start_ns"] - accept
    columns["wall_ns"] = columns["wall_ns"] + accept + tcp
    return columns | {"tcp_ns": tcp, "accept_ns": accept}


def test_what_tcp_and_accept_take_makes_nobody_wait(make: Make) -> None:
    one = thread(1, 20_000, slow=0.02)
    rng = np.random.default_rng(5)
    tcp, accept = (
        np.where(rng.random(20_000) < 0.05, rng.integers(0, 5 * MILLISECOND, 20_000), 0)
        for _ in range(2)
    )
    plain = replayed_whole(make("plain", **one.rows()))
    aside = replayed_whole(make("aside", **with_asides(one, tcp, accept)))
    np.testing.assert_array_equal(plain.queues[1].late, aside.queues[1].late)
    assert plain.queues[1].late.any()
    # A fix of theirs shortens the span by them, and nobody's wait.
    waiting = aside.queues[0].rows
    more = {name: waiting.values[name] for name in ("tcp", "accept")}
    assert all(values.any() for values in more.values())
    alone, replayed = aside.replayed(more)
    np.testing.assert_array_equal(alone, replayed)
    np.testing.assert_array_equal(alone, plain.queues[0].rows.wall)


@pytest.mark.parametrize("cause", ["stopped", "reclaim"])
def test_waits_of_the_thread_make_those_behind_it_wait(make: Make, cause: str) -> None:
    rows = hold_up(thread(1, 20_000), 4 * MILLISECOND, 200 * MILLISECOND).rows()
    renamed = {name.replace("runqueue", cause): values for name, values in rows.items()}
    found = []
    for name, columns in (("runqueue", rows), (cause, renamed)):
        queued = replayed_whole(make(name, **columns))
        found.append(queued.replayed({name: queued.queues[0].rows.values[name]}))
    np.testing.assert_array_equal(found[0], found[1])
    alone, replayed = found[1]
    assert (replayed < alone).any()


@pytest.mark.parametrize("cause", ["unknown", "downstream"])
def test_requests_that_leave_their_thread_occupy_none(make: Make, cause: str) -> None:
    columns = thread(1, 20_000, slow=0.02).rows()
    moved = np.arange(20_000) % 10 == 3
    columns["unknown_ns"] = np.where(moved, columns["wall_ns"] - columns["queue_ns"], 0)
    ledger = make("ledger", **columns)
    if cause != "unknown":
        other = f"unknown_ns AS {cause}_ns, (unknown_ns > 0)::BIGINT AS {cause}_n"
        rewrite(ledger, f"SELECT * REPLACE (0::BIGINT AS unknown_ns), {other} FROM {{rows}}")
    waiting, places = replayed_whole(ledger).queues
    assert places.late.any()
    assert not waiting.rows.values[cause].any()


def handed_on(slow: float) -> dict[str, np.ndarray]:
    """A thread polls for the data of all, and is now and then off its CPU with a slow request.
    Another thread then takes what came in that time, all at once."""
    rng, requests = np.random.default_rng(5), 20_000
    ready = np.sort(rng.integers(0, requests * MILLISECOND, requests)).tolist()
    work = rng.integers(40_000, 60_000, requests).tolist()
    waits = np.where(rng.random(requests) < slow, 6 * MILLISECOND, 0).tolist()
    busy_until, rows = 0, []
    for at, needs, waited in zip(ready, work, waits, strict=True):
        begun = max(at, busy_until)
        end = begun + needs + waited
        polls = begun == at or waited > 0
        busy_until = end if polls else busy_until
        rows.append((START_NS + at, end - at, waited, int(waited > 0), begun - at, 2 - polls, 1))
    names = ("start_ns", "wall_ns", "runqueue_ns", "runqueue_n", "queue_ns", "tid", "pid")
    return dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))


def test_what_another_thread_takes_has_waited_for_the_one_that_polls(make: Make) -> None:
    truth = float(np.quantile(handed_on(slow=0)["wall_ns"], 0.99))
    ledger = make(**handed_on(slow=0.03))
    chain = ", ".join(f"NULL::BIGINT AS {name}" for name in CHAIN)
    rewrite(ledger, f"SELECT *, {chain} FROM {{rows}}")
    found = explained(ledger)
    assert found.at_target.ns > 50 * truth
    assert predicted(found, "runqueue") == pytest.approx(truth, rel=0.2)
