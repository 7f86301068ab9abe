"""The cache penalty of strikes: found where it was planted, and not invented where it was not.

Each recording is made twice from the same spans, with the strikes and without them; the second is
the truth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from explain_synthetic import START_NS
from tailscope.engines.sample import Sample
from tailscope.present import text
from tailscope.present.pages.explain import page
from tailscope.statistics import explanation
from tailscope.statistics.bootstrap import draw
from tailscope.statistics.cache_penalty import cache_penalty
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.ranking import Cause
from tailscope.statistics.target import parse

ROWS = 20_000


def times(rng: np.random.Generator) -> np.ndarray:
    """When spans begin: 1,000 a second."""
    return START_NS + np.sort(rng.integers(0, ROWS * 1_000_000, ROWS))


def in_bursts(start_ns: np.ndarray) -> np.ndarray:
    """Which spans begin in the first 4 ms of each 50."""
    return (start_ns - START_NS) % 50_000_000 < 4_000_000


def explained(make: Make, without: Sequence[str] = (), **columns: np.ndarray) -> Explanation:
    ledger = tailscope.open(make(**columns))
    return explanation.explain(ledger, parse("p99"), None, seed=1, without=without)


def cause(found: Explanation, name: str) -> Cause:
    return next(one for one in found.causes if one.name == name)


@pytest.mark.parametrize("name", ["irq", "softirq_net", "preempted", "runqueue"])
def test_running_that_strikes_leave_cold_goes_with_them(make: Make, name: str) -> None:
    rng = np.random.default_rng(1)
    start_ns = times(rng)
    running = rng.lognormal(np.log(70_000), 0.1, ROWS)
    struck = in_bursts(start_ns)
    booked = np.where(struck, rng.normal(20_000, 2_000, ROWS), 0).astype(np.int64)
    left = np.where(struck, rng.normal(150_000, 15_000, ROWS), 0)
    wall = (running + left).astype(np.int64) + booked
    columns = {"start_ns": start_ns, "wall_ns": wall, f"{name}_ns": booked}
    found = explained(make, (name,), **columns)
    truth = float(np.quantile(running, 0.99))
    line = cause(found, name)
    assert found.causes[0].name == name
    assert line.predicted.ns == pytest.approx(truth, rel=0.05)
    assert line.predicted.lo < truth < line.predicted.hi
    # All but what was booked, which is 20 µs in each.
    assert line.cold_ns == pytest.approx(line.saving.ns - 20_000, rel=0.1)
    assert found.without is not None
    assert found.without.predicted.ns == line.predicted.ns
    assert found.curves[name].value_at(0.99) == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("by", ["(idle)", "neighbour"])
def test_a_slow_machine_s_wake_ups_leave_nothing_cold(make: Make, by: str) -> None:
    # All takes twice as long in each other second: the span, and the idle CPU's waking up before.
    rng = np.random.default_rng(5)
    start_ns = times(rng)
    slower = 1 + (start_ns // 1_000_000_000) % 2
    running = (rng.lognormal(np.log(150_000), 0.2, ROWS) * slower).astype(np.int64)
    waits = (rng.normal(3_000, 200, ROWS) * slower).astype(np.int64)
    columns = {"start_ns": start_ns, "wall_ns": running + waits, "runqueue_ns": waits}
    ledger = rewrite(
        make(**columns), f"SELECT * EXCLUDE (row), '{by}' AS runqueue_by FROM {{rows}}"
    )
    found = explanation.explain(tailscope.open(ledger), parse("p99"), None, seed=1)
    # Nothing in the rows tells the machine's speed from what another thread leaves behind.
    assert (cause(found, "runqueue").cold_ns > 0) == (by == "neighbour")
    assert (found.causes[0].name == "running") == (by == "(idle)")


def test_what_strikes_leave_cold_is_not_running_s_too(make: Make) -> None:
    # Who is struck runs far longer, and all spans differ a little: to bring their own running to
    # its median saves that little.
    rng = np.random.default_rng(7)
    start_ns = times(rng)
    running = rng.lognormal(np.log(70_000), 0.2, ROWS)
    struck = in_bursts(start_ns)
    booked = np.where(struck, 20_000, 0)
    left = np.where(struck, rng.normal(150_000, 15_000, ROWS), 0)
    wall = (running + left).astype(np.int64) + booked
    found = explained(make, ("running",), start_ns=start_ns, wall_ns=wall, irq_ns=booked)
    rest = np.minimum(running, np.median(running)) + left + booked
    truth = float(np.quantile(wall, 0.99) - np.quantile(rest, 0.99))
    assert [cause.name for cause in found.causes] == ["irq", "running"]
    assert cause(found, "running").saving.ns == pytest.approx(truth, abs=10_000)
    assert found.without is not None
    assert found.without.saving.ns == cause(found, "running").saving.ns
    assert found.shares is not None
    assert found.shares.shares["irq"] == pytest.approx(cause(found, "irq").saving.ns, rel=0.15)
    # Both at once take all of it.
    both = explained(make, ("irq", "running"), start_ns=start_ns, wall_ns=wall, irq_ns=booked)
    assert both.without is not None
    assert both.without.predicted.ns == pytest.approx(np.median(running), rel=0.05)


@pytest.mark.parametrize("rate", [0.3, 3.0])
def test_long_spans_meet_more_interrupts_and_nothing_is_invented(make: Make, rate: float) -> None:
    # Lengths over two orders of magnitude: struck spans are far longer than others, for no reason
    # but that they are longer.
    rng = np.random.default_rng(2)
    running = rng.lognormal(np.log(50_000), 1.0, ROWS)
    strikes = rng.poisson(rate * running / 500_000)
    booked = strikes * 1_000
    wall = running.astype(np.int64) + booked
    struck = strikes > 0
    assert running[struck].mean() > 1.5 * running[~struck].mean()
    found = explained(make, start_ns=times(rng), wall_ns=wall, irq_ns=booked)
    line = cause(found, "irq")
    assert line.cold_ns == 0
    assert line.predicted.ns == pytest.approx(float(np.quantile(running, 0.99)), rel=0.01)


@pytest.mark.parametrize("name", ["irq", "preempted"])
@pytest.mark.parametrize("heavy_ns", [2_000_000, 6_000_000, 30_000_000])
def test_requests_that_are_nearly_always_struck_are_not_the_strikes_doing(
    make: Make, name: str, heavy_ns: int
) -> None:
    # One in twenty is of another kind, and a tick comes every 4 ms.
    rng = np.random.default_rng(1)
    heavy = rng.random(ROWS) < 0.05
    running = np.where(heavy, heavy_ns, 100_000) * rng.lognormal(0, 0.1, ROWS)
    ticks = np.floor(running / 4e6 + rng.random(ROWS)).astype(np.int64)
    wall = running.astype(np.int64) + 5_000 * ticks
    found = explained(make, start_ns=times(rng), wall_ns=wall, **{f"{name}_ns": 5_000 * ticks})
    # Ticks strike the heavy ones somewhat more often than strikes at random would.
    truth = float(np.quantile(running, 0.99))
    assert cause(found, name).predicted.ns == pytest.approx(truth, rel=0.02)


def test_requests_of_two_kinds_lose_what_strikes_leave_cold(make: Make) -> None:
    # The heavy ones are always struck, and what that leaves cold in them can't be told.
    rng = np.random.default_rng(1)
    start_ns = times(rng)
    heavy = rng.random(ROWS) < 0.005
    running = np.where(heavy, 30_000_000, 70_000) * rng.lognormal(0, 0.1, ROWS)
    struck = in_bursts(start_ns) | heavy
    left = np.where(struck, 150_000, 0)
    wall = (running + left).astype(np.int64) + 20_000 * struck
    booked = 20_000 * struck.astype(np.int64)
    found = explained(make, ("irq",), start_ns=start_ns, wall_ns=wall, irq_ns=booked)
    truth = float(np.quantile(running, 0.99))
    assert cause(found, "irq").predicted.ns == pytest.approx(truth, rel=0.1)


def test_long_spans_meet_more_bursts_and_nothing_is_invented(make: Make) -> None:
    # Bursts of 2 ms each 20: a span that runs for r meets one with a chance of (2 ms + r) / 20 ms.
    rng = np.random.default_rng(3)
    running = rng.lognormal(np.log(500_000), 0.8, ROWS)
    met = rng.random(ROWS) * 20_000_000 < 2_000_000 + running
    booked = np.where(met, 10_000, 0)
    wall = running.astype(np.int64) + booked
    found = explained(make, start_ns=times(rng), wall_ns=wall, softirq_net_ns=booked)
    assert running[met].mean() > 1.05 * running[~met].mean()
    assert cause(found, "softirq_net").cold_ns == 0


def overlapping(start_ns: np.ndarray, length_ns: np.ndarray) -> np.ndarray:
    """Which spans meet a burst: 2 ms at a time, at random, 20 ms from one's end to the next."""
    rng = np.random.default_rng(8)
    ends = START_NS + np.cumsum(2_000_000 + rng.exponential(20_000_000, ROWS)).astype(np.int64)
    following = np.searchsorted(ends, start_ns)
    return start_ns + length_ns > ends[following] - 2_000_000


def test_bursts_strike_long_spans_hardly_more_often_than_short_ones() -> None:
    # Spans differ as much as strikes add. What struck ones are brought to is what they would have
    # been; by a constant rate it was two fifths more.
    rng = np.random.default_rng(9)
    start_ns = times(rng)
    would = rng.lognormal(np.log(70_000), 0.6, ROWS)
    struck = overlapping(start_ns, would.astype(np.int64))
    running = np.where(struck, 3 * would, would).astype(np.int64)
    values = {"irq": np.where(struck, 20_000, 0), "running": running}
    block = (start_ns - START_NS) // (ROWS * 1_000_000 // 200)
    rows = Sample(running + values["irq"], np.ones(ROWS), values, {}, ROWS, block)
    found = cache_penalty(rows, "irq", 0, draw(200, 1, 9))
    assert found is not None
    for rank in (0.25, 0.5, 0.9):
        was = float(np.quantile(running[struck], rank))
        truth = float(np.quantile(would[struck], rank))
        brought_to = float(np.interp(was, found.runs, found.would))
        assert truth * 0.95 <= brought_to <= truth * 1.25, rank


@pytest.mark.parametrize("typical", [70_000, 500_000])
def test_spans_of_all_lengths_meet_bursts_and_nothing_is_invented(make: Make, typical: int) -> None:
    rng = np.random.default_rng(10)
    start_ns = times(rng)
    running = rng.lognormal(np.log(typical), 0.8, ROWS).astype(np.int64)
    booked = np.where(overlapping(start_ns, running), 10_000, 0)
    wall = running + booked
    found = explained(make, start_ns=start_ns, wall_ns=wall, softirq_net_ns=booked)
    assert cause(found, "softirq_net").cold_ns == 0


def test_long_spans_that_follow_each_other_are_no_bursts(make: Make) -> None:
    # For a tenth of the time spans do ten times the work; interrupts come at a constant rate.
    rng = np.random.default_rng(11)
    start_ns = times(rng)
    long = in_bursts(start_ns // 50 + START_NS)
    running = rng.lognormal(np.log(50_000), 0.3, ROWS) * np.where(long, 10, 1)
    booked = rng.poisson(running / 1_000_000) * 1_000
    wall = running.astype(np.int64) + booked
    found = explained(make, start_ns=start_ns, wall_ns=wall, irq_ns=booked)
    assert cause(found, "irq").cold_ns == 0


def test_running_that_has_nothing_to_do_with_strikes_stays() -> None:
    found = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        start_ns = times(rng)
        running = rng.lognormal(np.log(50_000), 0.5, ROWS).astype(np.int64)
        booked = np.where(in_bursts(start_ns), 20_000, 0)
        block = (start_ns - START_NS) // (ROWS * 1_000_000 // 200)
        values = {"preempted": booked, "running": running}
        rows = Sample(running + booked, np.ones(ROWS), values, {}, ROWS, block)
        found.append(cache_penalty(rows, "preempted", 0, draw(200, 1, seed)))
    # One in 740 is what chance makes of three standard errors, above 0.
    assert sum(one is not None for one in found) <= 2


@pytest.mark.parametrize("name", ["fault", "lock", "io", "throttled"])
def test_what_a_span_brings_on_itself_says_nothing_of_its_running(make: Make, name: str) -> None:
    # One span in twenty is of another kind: it does more, and that takes pages, locks, blocks.
    rng = np.random.default_rng(4)
    other = rng.random(ROWS) < 0.05
    running = np.where(other, 300_000, 50_000) + rng.integers(0, 5_000, ROWS)
    booked = np.where(other, 30_000, 0)
    found = explained(make, wall_ns=running + booked, **{f"{name}_ns": booked})
    assert cause(found, name).cold_ns == 0
    assert cause(found, name).saving.ns == pytest.approx(30_000, rel=0.05)


@pytest.mark.parametrize("name", ["fault", "lock", "io"])
@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
def test_the_interval_holds_whatever_goes_with_what_a_span_brings_on_itself(
    make: Make, name: str, part: float
) -> None:
    # One span in twenty runs longer by less than it is held up. Some part of that goes, or none.
    rng = np.random.default_rng(4)
    other = rng.random(ROWS) < 0.05
    running = rng.lognormal(np.log(50_000), 0.05, ROWS).astype(np.int64)
    longer = np.where(other, rng.normal(20_000, 1_000, ROWS), 0).astype(np.int64)
    booked = np.where(other, 30_000, 0)
    wall = running + longer + booked
    found = explained(make, (name,), wall_ns=wall, **{f"{name}_ns": booked})
    truth = float(np.quantile(wall - booked - part * longer, 0.99))
    assert found.without is not None
    for one in (cause(found, name), found.without):
        assert one.predicted.lo < truth < one.predicted.hi
        assert one.predicted.ns == pytest.approx(np.quantile(wall - booked, 0.99), rel=0.01)
        assert one.perhaps_ns == pytest.approx(14_000, rel=0.2)
    assert found.without.again.lo < truth < found.without.again.hi


@pytest.mark.parametrize("beside", ["fault", "irq"])
def test_of_two_causes_at_once_each_may_take_its_part(make: Make, beside: str) -> None:
    # Spans that block and are struck by something else besides run longer by what both left.
    rng = np.random.default_rng(9)
    start_ns = times(rng)
    running = rng.lognormal(np.log(50_000), 0.05, ROWS).astype(np.int64)
    struck = in_bursts(start_ns)
    booked = np.where(struck, 30_000, 0)
    left = np.where(struck, rng.normal(50_000, 1_000, ROWS), 0).astype(np.int64)
    wall = running + 2 * booked + left
    columns = {"io_ns": booked, f"{beside}_ns": booked}
    found = explained(make, ("io", beside), start_ns=start_ns, wall_ns=wall, **columns)
    assert found.without is not None
    truth = float(np.quantile(running, 0.99))
    assert found.without.predicted.lo <= truth * 1.001
    assert found.without.predicted.lo > 0.9 * truth


def test_no_more_goes_with_what_a_span_brings_on_itself_than_that_took(make: Make) -> None:
    rng = np.random.default_rng(4)
    other = rng.random(ROWS) < 0.05
    running = np.where(other, 300_000, 50_000) + rng.integers(0, 5_000, ROWS)
    booked = np.where(other, 30_000, 0)
    found = explained(make, wall_ns=running + booked, io_ns=booked)
    assert cause(found, "io").saving.ns == pytest.approx(30_000, rel=0.05)
    assert cause(found, "io").saving.hi == pytest.approx(60_000, rel=0.05)
    said = "30.0 µs of running may go with it: see the interval"
    assert said in text.render(found, detail=text.Detail(verbose=True))
    assert said in page(found)


def test_a_quota_used_up_in_each_period_leaves_spans_cold(make: Make) -> None:
    # The first span after each 20 ms meets its end.
    rng = np.random.default_rng(6)
    start_ns = times(rng)
    period = (start_ns - START_NS) // 20_000_000
    struck = np.append(False, np.diff(period) > 0)
    running = rng.lognormal(np.log(70_000), 0.1, ROWS)
    booked = np.where(struck, 10_000_000, 0)
    wall = (running + np.where(struck, 150_000, 0)).astype(np.int64) + booked
    found = explained(make, ("throttled",), start_ns=start_ns, wall_ns=wall, throttled_ns=booked)
    truth = float(np.quantile(running, 0.99))
    assert cause(found, "throttled").predicted.ns == pytest.approx(truth, rel=0.05)


def test_who_blocks_waits_again_and_that_wait_says_nothing(make: Make) -> None:
    rng = np.random.default_rng(5)
    other = rng.random(ROWS) < 0.05
    running = np.where(other, 300_000, 50_000) + rng.integers(0, 5_000, ROWS)
    waits = rng.integers(1_000, 3_000, ROWS) * np.where(other, 4, 1)
    slept = np.where(other, 100_000, 0)
    wall = running + waits + slept
    found = explained(make, wall_ns=wall, runqueue_ns=waits, io_ns=slept)
    assert cause(found, "runqueue").cold_ns == 0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("irq", "of that is outside its handlers, cache penalty included"),
        ("preempted", "of that is its cache penalty"),
    ],
)
def test_the_text_the_report_and_json_say_it(make: Make, name: str, said: str) -> None:
    rng = np.random.default_rng(6)
    start_ns = times(rng)
    struck = in_bursts(start_ns)
    booked = np.where(struck, 20_000, 0)
    wall = rng.integers(60_000, 70_000, ROWS) + np.where(struck, 120_000, 0)
    found = explained(make, start_ns=start_ns, wall_ns=wall, **{f"{name}_ns": booked})
    assert said in text.render(found, detail=text.Detail(verbose=True))
    assert said in page(found)
    assert found.to_dict()["causes"][0]["cold_ns"] > 80_000


def test_requests_of_another_thread_are_no_spans_without_a_strike(make: Make) -> None:
    rng = np.random.default_rng(7)
    start_ns = times(rng)
    moved = rng.random(ROWS) < 0.95
    # Strikes cost nothing here; only the requests without a running of their own look faster.
    struck = ~moved & (rng.random(ROWS) < 0.3)
    booked = np.where(struck, 20_000, 0)
    running = rng.integers(60_000, 70_000, ROWS) * np.where(moved, 1, 10)
    found = explained(
        make,
        start_ns=start_ns,
        wall_ns=running + booked,
        runqueue_ns=booked,
        unknown_ns=np.where(moved, running, 0),
    )
    assert cause(found, "runqueue").cold_ns == 0
