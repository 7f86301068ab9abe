"""What one of those to blame for a cause is worth: by hand, and where nobody is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import Command, flat, runner
from conftest import Make, rewrite
from queue_synthetic import MILLISECOND, Thread, thread
from tailscope.cli import main

#: One span in ten queues behind a report, and one in ten behind ordinary load.
QUICK, BEHIND_REPORT, BEHIND_LOAD = 100_000, 2_000_000, 400_000


@pytest.fixture
def queued(make: Make) -> Path:
    """Spans of a tenth of a millisecond, some of which queue behind `GET /report` or `GET /a`."""
    number = np.arange(2000)
    queue = np.where(number % 10 == 3, BEHIND_REPORT, np.where(number % 10 == 7, BEHIND_LOAD, 0))
    ledger = make(wall_ns=QUICK + queue, queue_ns=queue)
    who = "CASE WHEN row % 10 = 3 THEN 'GET /report' WHEN queue_ns > 0 THEN 'GET /a' END"
    return rewrite(ledger, f"SELECT * EXCLUDE (row), ({who}) AS queue_by FROM {{rows}}")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.mark.parametrize(
    ("without", "left"),
    [
        ("queue:GET /report", BEHIND_LOAD),
        ("queue:GET /a", BEHIND_REPORT),
        ("queue", 0),
        ("queue:GET /a,queue:GET /report", 0),
        ("queue:GET /a,queue", 0),
        ("queue:GET /report,running", BEHIND_LOAD),
    ],
)
def test_only_the_spans_that_name_one_are_without_it(
    without: str, left: int, queued: Path, run: Command
) -> None:
    code, out, _ = run(queued, "--without", without, "--json")
    assert code == 0
    found = json.loads(out)["without"]
    assert found["causes"] == without.split(",")
    assert found["predicted_ns"] == pytest.approx(QUICK + left, rel=0.01)
    assert found["predicted_lo_ns"] <= found["predicted_ns"] <= found["predicted_hi_ns"]


def test_one_to_blame_is_printed_with_its_cause(queued: Path, run: Command) -> None:
    code, out, _ = run(queued, "--without", "queue:GET /report")
    assert code == 0
    assert "without queue:GET /report: p99 " in flat(out)


def test_who_is_not_to_blame_is_refused_with_those_who_are(queued: Path, run: Command) -> None:
    code, _, err = run(queued, "--without", "queue:GET /b")
    assert code == 2
    assert "'GET /b' is not to blame for queue; to blame are GET /report, GET /a" in err


@pytest.mark.parametrize("cause", ["fault", "lock"])
def test_a_cause_for_which_the_ledger_names_nobody(cause: str, queued: Path, run: Command) -> None:
    code, _, err = run(queued, "--without", f"{cause}:GET /report")
    assert code == 2
    assert f"this ledger does not say who is to blame for {cause}" in err


@pytest.mark.parametrize("downstream_ns", [0, 10_000])
def test_who_queued_for_those_behind_a_slow_request_is_without_it_too(
    downstream_ns: int, make: Make, run: Command
) -> None:
    """The prediction is what a thread that never got these requests would have done. Spans that ask
    another server are not replayed: of them only those change that name the request."""
    busy = thread(1, 40_000, slow=0.005)
    slow = busy.service > MILLISECOND
    truth = Thread(1, busy.ready[~slow], busy.service[~slow]).rows()["wall_ns"]
    rows = busy.rows()
    rows["downstream_ns"] = np.full(len(slow), downstream_ns)
    rows["wall_ns"] = rows["wall_ns"] + downstream_ns
    who = "CASE WHEN queue_ns > 1000000 THEN 'GET /report' WHEN queue_ns > 0 THEN 'GET /usual' END"
    name = "if(wall_ns - queue_ns > 1000000, 'GET /report', 'GET /usual')"
    named = f"REPLACE ({name} AS span), ({who}) AS queue_by"
    ledger = rewrite(make(**rows), f"SELECT * EXCLUDE row {named} FROM {{rows}}")
    asked = ("--span", "GET /usual", "--json", "--without")
    code, out, _ = run(ledger, *asked, "queue:GET /report")
    assert code == 0
    found, p99 = json.loads(out), float(np.quantile(truth, 0.99))
    assert found["target_ns"]["ns"] > 20 * p99
    predicted = found["without"]["predicted_ns"]
    _, more, _ = run(ledger, *asked, "queue:GET /report,downstream")
    assert json.loads(more)["without"]["predicted_ns"] <= predicted
    if downstream_ns:
        assert p99 < predicted < 1_100_000
    else:
        assert predicted == pytest.approx(p99, rel=0.05)


def test_the_median_is_not_held_up_by_what_was_not_replayed(make: Make, run: Command) -> None:
    """Two of three spans queue behind a report: without it, the median is what the third takes."""
    number = np.arange(3000)
    queue = np.where(number % 3 == 0, 0, BEHIND_REPORT)
    ledger = make(wall_ns=QUICK + queue, queue_ns=queue)
    who = "CASE WHEN queue_ns > 0 THEN 'GET /report, all' END"
    ledger = rewrite(ledger, f"SELECT * EXCLUDE (row), ({who}) AS queue_by FROM {{rows}}")
    code, out, _ = run(ledger, "-p", "p50", "--without", "queue:GET /report, all", "--json")
    assert code == 0
    found = json.loads(out)["without"]
    assert found["causes"] == ["queue:GET /report, all"]
    assert found["predicted_ns"] == pytest.approx(QUICK, rel=0.01)
