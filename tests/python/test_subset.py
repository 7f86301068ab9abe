"""Rows kept apart in one pass: the same rows as in a pass for each question, so one answer."""

from __future__ import annotations

from pathlib import Path

import ibis
import pytest
import tailscope
from explain_synthetic import BUSY, World, generate
from tailscope.statistics import subset

#: Of few rows: none of them all in memory, some drawn, some replayed.
QUOTAS = {
    "tailscope.engines.draw.IN_MEMORY": 0,
    "tailscope.engines.draw.QUOTA": (2_000, 4_000, 300),
    "tailscope.statistics.replay.QUOTA": 20_000,
}


@pytest.mark.parametrize("keep", [1.0, 0.2], ids=["each span a row", "tail kept"])
def test_rows_that_are_kept_apart_change_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: float
) -> None:
    world = World(60_000, seconds=60, plants=BUSY, seed=6, keep=keep)
    ledger = tailscope.open(generate(tmp_path / "ledger", world))
    for name, value in QUOTAS.items():
        monkeypatch.setattr(name, value)
    kept = []
    with_subset = subset.with_subset

    def watched(spans, rows, *others):  # noqa: ANN001, ANN002, ANN202 (those of with_subset)
        spans = with_subset(spans, rows, *others)
        if spans.subset:
            kept.append(
                int(spans.engine.run(spans.subset.table.agg(rows=ibis._.count()))["rows"][0])
            )
        return spans

    monkeypatch.setattr("tailscope.statistics.explanation.with_subset", watched)
    expected = ledger.explain("p99").to_dict()
    assert not kept
    monkeypatch.setattr(subset, "MANY", 0)
    found = ledger.explain("p99").to_dict()
    assert found == expected
    assert expected["method"]["replayed"] == (keep == 1.0)
    (rows,) = kept
    assert rows < 0.6 * expected["rows"]


def test_where_all_rows_are_drawn_none_are_kept_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.engines.draw.IN_MEMORY", 0)
    ledger = tailscope.open(generate(tmp_path / "ledger", World(20_000, seconds=60)))
    expected = ledger.explain("p99").to_dict()
    monkeypatch.setattr(subset, "MANY", 0)
    assert ledger.explain("p99").to_dict() == expected
