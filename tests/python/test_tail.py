"""The tail that most questions go to: the same answers as from all rows, bin for bin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import START_NS, World
from tailscope.engines.grid import bins_of
from tailscope.engines.timed import Counts, Timed
from tailscope.statistics import explanation


def everything_from_all_rows(ledger: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> dict:
    with monkeypatch.context() as patch:
        patch.setattr(explanation, "TAIL", 1e9)
        return tailscope.open(ledger).explain(target).to_dict()


@pytest.mark.parametrize("target", ["p90", "p99", "p99.9"])
def test_a_planted_ledger_gets_the_same_answer_from_its_tail(
    planted: tuple[Path, World], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tailscope.open(planted[0]).explain(target).to_dict()
    expected = everything_from_all_rows(planted[0], target, monkeypatch)
    assert found["causes"] == expected["causes"]
    assert found["together"] == expected["together"]


def test_a_fix_that_empties_the_whole_tail_is_asked_of_all_rows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock in a third of the spans: without it p99 is far below where the tail began."""
    rng = np.random.default_rng(4)
    rows = 20_000
    base = rng.integers(40_000, 60_000, rows)
    lock = np.where(rng.random(rows) < 0.3, rng.integers(500_000, 900_000, rows), 0)
    io = np.where(rng.random(rows) < 0.9, rng.integers(1_000, 30_000, rows), 0)
    ledger = make(wall_ns=base + lock + io, lock_ns=lock, io_ns=io, weight=rng.integers(1, 4, rows))
    found = tailscope.open(ledger).explain().to_dict()
    expected = everything_from_all_rows(ledger, "p99", monkeypatch)
    assert found["causes"] == expected["causes"]
    assert found["together"] == expected["together"]
    lock = next(cause for cause in found["causes"] if cause["name"] == "lock")
    assert lock["predicted_ns"] < 100_000 < lock["saving_ns"]


def test_what_lies_below_a_bin_is_summed_up_beneath_it() -> None:
    walls = np.array([100, 200, 300, 5_000])
    counts = Counts(np.array([0, 0, 1, 1]), bins_of(walls), np.array([1.0, 2.0, 4.0, 8.0]))
    whole = Timed.of(counts, 2)
    floor = int(bins_of(300))
    cut = whole.from_bin(floor)
    assert cut.first == floor - 1
    assert cut.weight[:, 0].tolist() == [3.0, 0.0]
    assert cut.weight.sum() == whole.weight.sum()
    assert cut.distribution().value_at(0.9) == whole.distribution().value_at(0.9)
    assert whole.from_bin(whole.first) is whole


def test_spans_of_one_moment_have_a_tail_too(make: Make) -> None:
    ledger = make(wall_ns=[5, 5, 5, 9], lock_ns=[0, 0, 0, 4], start_ns=[START_NS] * 4)
    assert tailscope.open(ledger).explain().causes[0].name == "lock"
