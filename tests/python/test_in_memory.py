"""What is answered from rows in memory is what the engine answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from tailscope.engines.duckdb import DuckDB
from tailscope.statistics.explanation import Explanation


def ledger(make: Make, *, weights: bool) -> Path:
    """A cause that is null in some rows, one that most have, a counter; and weights or a queue."""
    rng = np.random.default_rng(21)
    rows = 12_000
    lock = np.where(rng.random(rows) < 0.04, rng.integers(50_000, 900_000, rows), 0)
    io = np.where(rng.random(rows) < 0.02, rng.integers(400_000, 700_000, rows), 0)
    sleep = rng.integers(0, 4_000, rows)
    queue = np.zeros(rows) if weights else rng.integers(0, 20_000, rows)
    made = make(
        wall_ns=rng.lognormal(10.5, 0.3, rows).astype(np.int64) + lock + io + sleep + queue,
        lock_ns=lock,
        lock_n=rng.integers(0, 3, rows),
        io_ns=io,
        sleep_ns=sleep,
        queue_ns=queue,
        weight=rng.integers(1, 4, rows) if weights else np.ones(rows),
        pid=np.ones(rows),
        tid=np.arange(rows) % 2,
    )
    return rewrite(
        made,
        "SELECT * EXCLUDE row REPLACE (CASE WHEN row // 1000 % 3 > 0 THEN io_ns END AS io_ns), "
        "CASE WHEN row % 5 > 1 THEN wall_ns * 3 + row % 1000 END AS instructions FROM {rows}",
    )


def close(one: object, other: object, where: str = "") -> None:
    """Equal, but for the order in which floats were added up."""
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            close(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for number, (mine, yours) in enumerate(zip(one, other, strict=True)):
            close(mine, yours, f"{where}[{number}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-6), where
    else:
        assert one == other, where


@pytest.mark.parametrize("weights", [True, False], ids=["weights", "queue"])
def test_the_answer_is_the_engines(
    make: Make, monkeypatch: pytest.MonkeyPatch, weights: bool
) -> None:
    path = ledger(make, weights=weights)
    questions = []
    run = DuckDB.run

    def counted(self: DuckDB, query: Any) -> dict:  # noqa: ANN401 (an Ibis table)
        questions.append(query)
        return run(self, query)

    def explained(rows: int) -> tuple[int, Explanation]:
        """With so many rows in memory at most, and how many questions went to the engine."""
        monkeypatch.setattr("tailscope.engines.draw.IN_MEMORY", rows)
        questions.clear()
        found = tailscope.open(path).explain("p95", segment="5s")
        return len(questions), found

    monkeypatch.setattr(DuckDB, "run", counted)
    most, expected = explained(0)
    assert expected.counters and expected.segments is not None
    assert expected.replayed_share == (0.0 if weights else 1.0)
    asked = []
    # The tail alone; that and a segment; everything.
    for rows in (3_500, 6_000, 100_000):
        count, found = explained(rows)
        asked.append(count)
        close(expected.to_dict(), found.to_dict())
    assert most > asked[0] > asked[1] > asked[2]
    assert asked[2] < most / 3
