"""Who is to blame for a cause: by hand, and where nobody is named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tailscope
from conftest import Make, rewrite
from tailscope.present.pages.explain import page
from tailscope.present.text import render
from tailscope.statistics.blame import Blame, Blamed, mostly, of_span, words
from tailscope.statistics.explanation import Cause, Explanation


def named(ledger: Path, cause: str, who: str) -> Path:
    """The ledger with a column that names who is to blame, by an expression over its columns."""
    return rewrite(ledger, f"SELECT * EXCLUDE (row), ({who}) AS {cause}_by FROM {{rows}}")


def cause(explanation: Explanation, name: str) -> Cause:
    return next(found for found in explanation.causes if found.name == name)


def shares(blame: Blame | None) -> dict[str, float]:
    assert blame is not None
    return {one.name: pytest.approx(one.share) for one in blame.culprits}


def test_the_time_of_the_tail_is_put_down_to_whom_its_spans_name(two_values: Path) -> None:
    who = "CASE WHEN row % 200 = 49 THEN 'server/writer' WHEN lock_ns > 0 THEN 'backup' END"
    found = tailscope.open(named(two_values, "lock", who)).explain("p99")
    blame = cause(found, "lock").blame
    assert shares(blame) == {"backup": 0.75, "server/writer": 0.25}
    assert [one.spans for one in blame.culprits] == [15, 5]
    assert (blame.others, blame.others_share, blame.unknown_share) == (0, 0, 0)
    assert cause(found, "running").blame is None
    text = render(found)
    assert "released by backup (75 %), server/writer (25 %)" in text
    assert "waiting for a lock, mostly\nreleased by backup." in text
    assert "released by backup (75 %), server/writer (25 %)" in page(found)
    assert "<td>lock: backup</td>" in page(found)
    assert "released by backup (75 %)" in repr(found.causes)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["causes"][0]["blame"]["culprits"][0]["name"] == "backup"
    assert {span["culprits"]["lock"] for span in told["worst"]} == {"backup", "server/writer"}


def test_rows_count_by_their_weight_and_only_those_of_the_tail(make: Make) -> None:
    number = np.arange(1000)
    slow = number % 20 == 19
    ledger = make(
        wall_ns=np.where(slow, 1_000_000, 100_000),
        runqueue_ns=np.where(slow, 900_000, 20_000),
        weight=np.where(number % 40 == 19, 3, 1),
    )
    who = "CASE WHEN NOT (row % 20 = 19) THEN 'harmless' WHEN row % 40 = 19 THEN 'a' ELSE 'b' END"
    found = tailscope.open(named(ledger, "runqueue", who)).explain("p99")
    assert shares(cause(found, "runqueue").blame) == {"a": 0.75, "b": 0.25}


def test_many_names_are_summed_up_and_unknown_ones_said(two_values: Path) -> None:
    who = "CASE WHEN row >= 900 THEN NULL WHEN lock_ns > 0 THEN 'worker ' || (row // 50) END"
    found = tailscope.open(named(two_values, "lock", who)).explain("p99")
    blame = cause(found, "lock").blame
    assert blame is not None
    assert len(blame.culprits) == 8
    assert blame.others == 10
    assert blame.others_share == pytest.approx(0.5)
    assert blame.unknown_share == pytest.approx(0.1)
    assert "not known (10 %)" in words("lock", blame)
    assert mostly("lock", blame) == ""


def test_a_ledger_of_before_names_nobody(two_values: Path) -> None:
    found = tailscope.open(two_values).explain("p99")
    assert all(one.blame is None for one in found.causes)
    assert "released by" not in render(found)
    assert all(span.culprits == {} for span in found.worst)
    assert "to blame</th>" not in page(found)


def test_a_column_of_nulls_names_nobody(two_values: Path) -> None:
    found = tailscope.open(named(two_values, "lock", "CAST(NULL AS VARCHAR)")).explain("p99")
    assert cause(found, "lock").blame is None
    assert all(span.culprits == {} for span in found.worst)


def test_a_ledger_that_names_is_read_with_one_that_does_not(make: Make) -> None:
    slow = np.arange(1000) % 50 == 49
    columns = {"wall_ns": 100_000 + 900_000 * slow, "lock_ns": 900_000 * slow}
    old = make("old", **columns)
    new = named(make("new", **columns), "lock", "CASE WHEN lock_ns > 0 THEN 'holder' END")
    blame = cause(tailscope.open(old, new).explain("p99"), "lock").blame
    assert blame is not None
    assert shares(blame) == {"holder": 0.5}
    assert blame.unknown_share == pytest.approx(0.5)


def test_blame_is_said_in_words() -> None:
    found = Blame(
        (
            Blamed("(idle)", 0.6, 1.0, 1.0),
            Blamed("hog", 0.3, 1.0, 1.0),
            Blamed("ls", 0.01, 1.0, 1.0),
        ),
        others=0,
        others_share=0.0,
        unknown_share=0.0,
    )
    assert words("runqueue", found) == "behind an idle CPU waking up (60 %), hog (30 %)"
    assert words("irq", None) == ""
    assert mostly("runqueue", found) == "mostly behind an idle CPU waking up"
    assert of_span({"irq": 5, "lock": 9, "io": 99}, {"irq": "eth0", "lock": "b"}) == "lock: b"
    assert of_span({"irq": 0}, {"irq": "eth0"}) == ""
