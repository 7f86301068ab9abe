"""`tailscope diff`: what changed, what carries it, and when that fails a build."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tailscope
from command import Command, flat, runner, sentence
from conftest import Make
from explain_synthetic import QUIET, Plant, World, generate
from tailscope.diff_cli import main, parse_limit
from tailscope.quantity import Interval
from tailscope.statistics.change import CauseChange, PercentileChange, carriers
from tailscope.statistics.diff import Diff, diff
from tailscope.statistics.target import Target

ROWS = 4_000
SLOW = np.arange(ROWS) % 50 == 49
P99 = Target(99)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture
def grown(make: Make) -> tuple[Path, Path]:
    """Two ledgers: 2 % of the spans wait 900 µs for a lock, then 1,800 µs; the rest is noise."""
    noise = np.random.default_rng(1).integers(0, 5_000, ROWS)
    return tuple(
        make(
            name, wall_ns=100_000 + noise + np.where(SLOW, wait, 0), lock_ns=np.where(SLOW, wait, 0)
        )
        for name, wait in (("base", 900_000), ("new", 1_800_000))
    )


def compared(base: Path, new: Path, **options: object) -> Diff:
    return diff(tailscope.open(base), tailscope.open(new), P99, **options)


def test_a_cause_that_grew_carries_the_change(grown: tuple[Path, Path]) -> None:
    (kind,) = compared(*grown).kinds
    target = kind.change.target
    assert target.base.ns == pytest.approx(1_002_500, rel=0.003)
    assert target.change.ns == pytest.approx(900_000, rel=0.005)
    assert target.change.lo <= 900_000 <= target.change.hi
    assert target.is_sure
    lock = kind.change.causes[0]
    assert lock.name == "lock"
    assert (lock.base_ns, lock.new_ns) == (
        pytest.approx(900_000, rel=0.01),
        pytest.approx(1_800_000, rel=0.01),
    )
    assert lock.carries == pytest.approx(1.0, abs=0.01)
    median = next(one for one in kind.change.percentiles if one.name == "p50")
    assert not median.is_sure
    assert [one.name for one in kind.change.percentiles] == ["p50", "p90", "p99", "p99.9"]


def test_contributions_add_up_to_about_the_percentile(planted: tuple[Path, World]) -> None:
    (kind,) = compared(planted[0], planted[0]).kinds
    added = sum(cause.base_ns or 0 for cause in kind.change.causes)
    assert added == pytest.approx(kind.change.target.base.ns, rel=0.1)
    assert all(cause.change and cause.change.ns == 0 for cause in kind.change.causes)


def test_the_command_says_what_grew_and_fails_over_the_limit(
    grown: tuple[Path, Path], run: Command
) -> None:
    code, out, err = run(*grown, "--fail-over", "5%")
    assert (code, err) == (1, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    first = flat(out.split("\n\n")[0])
    assert first.startswith("p99 of recv..send grew from 1.00 ms to 1.90 ms (+90 %, 95 %: ")
    assert first.endswith("100 % lock: waiting for a lock.")
    assert "p99 of recv..send grew by more than 5.0 %: OVER the limit" in flat(out)
    assert run(*grown)[0] == 0
    assert run(*grown, "--fail-over", "95%")[0] == 0
    assert run(*reversed(grown), "--fail-over", "0%")[0] == 0
    assert "fell from 1.90 ms to 1.00 ms" in flat(run(*reversed(grown))[1])


def test_growth_that_may_be_noise_does_not_fail(tmp_path: Path, run: Command) -> None:
    plants = (*QUIET, Plant("runqueue", 0.3, 900_000, 300_000, coverage=0.05, burst_s=3.0))
    base, new = (
        generate(tmp_path / str(seed), World(20_000, seconds=60, plants=plants, seed=seed))
        for seed in (1, 4)
    )
    code, out, _ = run(base, new, "--fail-over", "5", "--json")
    found = json.loads(out)
    (kind,) = found["kinds"]
    assert kind["target"]["relative_lo"] < 0.05 < kind["target"]["relative_hi"]
    assert (code, kind["verdict"], found["over"]) == (0, "unsure", False)
    assert "record longer for a clear answer" in flat(run(base, new, "--fail-over", "5")[1])


def test_a_ledger_beside_itself_has_not_changed(planted: tuple[Path, World], run: Command) -> None:
    code, out, _ = run(planted[0], planted[0], "--fail-over", "400%")
    assert code == 0
    assert "has not changed significantly" in flat(out)
    assert "did not grow by more than 400 %" in flat(out)


def test_json_has_no_number_that_is_none(grown: tuple[Path, Path], run: Command) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(name)

    code, out, _ = run(*grown, "--json", "-p", "p99.5")
    found = json.loads(out, parse_constant=refuse)
    assert (code, found["target"], found["over"]) == (0, "p99.5", None)
    names = [one["percentile"] for one in found["kinds"][0]["percentiles"]]
    assert names == ["p50", "p90", "p99", "p99.5", "p99.9"]
    first = found["kinds"][0]["causes"][0]
    assert first["change_lo_ns"] <= first["change_ns"] <= first["change_hi_ns"]


def test_kinds_are_matched_by_name(make: Make, run: Command) -> None:
    world = World(1_000, seconds=1)
    for place, names in (("a", ("get", "set")), ("b", ("get", "del"))):
        for number, name in enumerate(names):
            make(place, wall_ns=[1_000] * 1_000, world=replace(world, span=name), number=number)
    base, new = make("a", wall_ns=[], number=2), make("b", wall_ns=[], number=2)
    found = json.loads(run(base, new, "--json")[1])
    assert [kind["span"] for kind in found["kinds"]] == ["get"]
    assert (found["only_base"], found["only_new"]) == (["set"], ["del"])
    assert "only in BASE: set" in run(base, new)[1]
    assert "NEW has no span named 'set'; it has: del, get" in said(run(base, new, "--span", "set"))
    other = make("c", wall_ns=[1], world=replace(world, span="put"))
    assert "no kind of span in common: BASE has get, set, NEW has put" in said(run(base, other))


def said(found: tuple[int, str, str]) -> str:
    return sentence(found, "tailscope diff")


def test_a_cause_that_one_side_could_not_measure_is_unknown_not_zero(
    make: Make, run: Command
) -> None:
    wall = np.where(SLOW, 1_000_000, 100_000)
    steal = np.where(SLOW, 500_000, 0)
    base = make("base", wall_ns=wall)
    world = World(ROWS, seconds=4, absent={})
    new = make("new", wall_ns=wall, steal_ns=steal, steal_n=SLOW, world=world)
    found = json.loads(run(base, new, "--json")[1])
    assert found["not_measured_in_base"] == ["throttled", "steal"]
    by_name = {cause["name"]: cause for cause in found["kinds"][0]["causes"]}
    assert by_name["steal"]["base_ns"] is None
    assert by_name["steal"]["change_ns"] is None
    assert by_name["steal"]["new_ns"] == pytest.approx(500_000)
    text = flat(run(base, new)[1])
    assert "not measured in BASE: throttled, steal; there that time is part of running" in text


def test_ledgers_made_in_different_ways_are_compared_with_care(make: Make, run: Command) -> None:
    base = make("base", wall_ns=[1_000] * 2_000)
    about = {
        "tailscope": "0.2.0",
        "spans": ["sdk"],
        "clock": {"source": "cntvct", "hz": 10**9},
        "ladder": {"irq": {"rung": "kprobe", "why": None}},
    }
    new = make("new", wall_ns=[1_000] * 2_000, about=about)
    code, out, _ = run(base, new)
    text = flat(out)
    assert code == 0
    assert "were recorded by different versions of tailscope (0.1.0 in" in text
    assert "have different kinds of spans (syscall:recv..send in" in text
    assert "were timed by different clocks (tsc in" in text
    assert "irq was measured by tracepoint in BASE and by kprobe in NEW" in text


def test_equal_latencies_and_single_spans_are_compared_too(make: Make, run: Command) -> None:
    base, new = make("base", wall_ns=[1_000] * 500), make("new", wall_ns=[2_000])
    code, out, _ = run(base, new)
    assert code == 0
    assert "* too few spans in one recording" in out
    nothing = make("nothing", wall_ns=[0] * 500)
    code, out, _ = run(nothing, base, "--fail-over", "5%")
    assert code == 1
    assert "from 0" in flat(out)


def test_wrong_usage_is_one_sentence(make: Make, run: Command, tmp_path: Path) -> None:
    base = make(wall_ns=[1_000] * 10)
    assert "'much' is not a limit" in said(run(base, base, "--fail-over", "much"))
    assert "there is no ledger at" in said(run(base, tmp_path / "nowhere"))
    assert "is not a percentile" in said(run(base, base, "-p", "x"))
    assert run(base)[0] == 2
    assert "the ledger is empty" in said(run(base, make("empty", wall_ns=[])))


@pytest.mark.parametrize(("text", "limit"), [("5%", 0.05), ("5", 0.05), ("0.5 %", 0.005)])
def test_limits_as_people_write_them(text: str, limit: float) -> None:
    assert parse_limit(text) == limit


def test_help_teaches_with_examples(run: Command) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "tailscope diff main/ branch/ --fail-over 5%" in out
    assert "exit codes: 0 done, 1 over the limit" in out


def test_what_changed_the_other_way_carries_nothing() -> None:
    def grown(name: str, ns: float) -> CauseChange:
        return CauseChange(name, "", 0.0, ns, Interval(ns, ns, ns), None)

    change = Interval(100.0, 90.0, 110.0)
    goal = PercentileChange("p99", change, change, change, None, too_few=False)
    causes = [grown("network", 101.0), grown("lock", -27.0), grown("io", 26.0)]
    parts = {cause.name: cause.carries for cause in carriers(causes, goal)}
    assert parts["lock"] == 0
    assert parts["network"] == pytest.approx(101 / 127)
    assert sum(part or 0 for part in parts.values()) == pytest.approx(1)
    unsure = replace(goal, change=Interval(100.0, -1.0, 110.0))
    assert all(cause.carries is None for cause in carriers(causes, unsure))
