"""Where saving and impact differ, the output says why."""

from __future__ import annotations

import numpy as np
import tailscope
from conftest import Make
from tailscope.present.text import Detail, render

SLOW = np.arange(2_000) % 40 == 7


def said(name: str, sentences: tuple[str, ...]) -> str:
    return next(sentence for sentence in sentences if sentence.startswith(f"{name} "))


def test_a_cause_that_comes_along_with_a_stronger_one_is_named_with_it(make: Make) -> None:
    packets = np.where(SLOW, 30_000, 0)
    ledger = make(
        wall_ns=100_000 + np.where(SLOW, 900_000, 0) + packets,
        lock_ns=np.where(SLOW, 900_000, 0),
        softirq_net_ns=packets,
    )
    found = tailscope.open(ledger).explain("p99")
    assert "it occurs in the same spans as lock" in said("softirq_net", found.disagreements)
    assert [pair.events for pair in found.pairs] == [("lock", "softirq_net")]
    assert "lock and softirq_net occur together" in " ".join(
        render(found, detail=Detail(impact=True)).split()
    )


def test_a_cause_that_all_spans_have_saves_more_than_its_impact(make: Make) -> None:
    rng = np.random.default_rng(3)
    io = (rng.gamma(8, 40_000, 4_000)).astype(np.int64)
    found = tailscope.open(make(wall_ns=20_000 + io, io_ns=io)).explain("p99")
    assert found.causes[0].name == "io"
    assert "fixing it makes all of them faster" in said("io", found.disagreements)


def test_causes_that_hide_each_other_are_worth_more_only_together(make: Make) -> None:
    kind = np.arange(1000) % 50
    ledger = make(
        wall_ns=np.where((kind == 10) | (kind == 30), 1_000_000, 100_000),
        lock_ns=np.where(kind == 10, 900_000, 0),
        io_ns=np.where(kind == 30, 900_000, 0),
    )
    found = tailscope.open(ledger).explain("p99")
    assert found.disagreements == ()
    assert "fair shares add up to 900 µs" in render(found, detail=Detail(verbose=True))


def test_methods_that_agree_need_no_word(make: Make) -> None:
    ledger = make(wall_ns=np.where(SLOW, 900_000, 100_000), lock_ns=np.where(SLOW, 800_000, 0))
    found = tailscope.open(ledger).explain("p99")
    assert found.disagreements == ()
    assert "saving and impact" not in render(found, detail=Detail(impact=True))
