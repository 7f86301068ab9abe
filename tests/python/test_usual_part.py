"""`explain --without` of a cause that most spans have: does what is usual of it stay, or go?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import Command, flat, runner
from conftest import Make, rewrite
from tailscope.cli import main

#: Spans of a tenth of a millisecond that wait for another server, one in fifty for far longer.
SPANS, OWN, USUAL, FAULT = 20_000, 100_000, 300_000, 4_000_000
FAULTY = np.arange(SPANS) % 50 == 7


def answers(seed: int, spread: float) -> np.ndarray:
    """How long another server takes when all is well (ns): spread by factors."""
    luck = np.random.default_rng(seed).standard_normal(SPANS)
    return (USUAL * np.exp(spread * luck)).astype(np.int64)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


def recorded(make: Make, waits: np.ndarray) -> Path:
    return make(wall_ns=OWN + waits, downstream_ns=waits)


def without(run: Command, ledger: Path, what: str = "downstream") -> dict[str, float]:
    code, out, _ = run(ledger, "--without", what, "--json")
    assert code == 0
    found: dict[str, float] = json.loads(out)["without"]
    return found


@pytest.mark.parametrize("spread", [0.1, 0.35])
def test_the_interval_holds_what_comes_when_only_the_fault_goes(
    spread: float, make: Make, run: Command
) -> None:
    calm = answers(1, spread)
    came_true = np.quantile(OWN + answers(2, spread), 0.99)
    found = without(run, recorded(make, np.where(FAULTY, FAULT, calm)))
    assert found["predicted_ns"] == pytest.approx(OWN + USUAL, rel=0.03)
    assert found["predicted_ns"] < came_true <= found["again_hi_ns"], found
    # No more than that: it does not reach to what the fault takes.
    assert found["again_hi_ns"] < 1.15 * came_true, found
    assert found["predicted_ns"] + found["usual_ns"] == pytest.approx(came_true, rel=0.06)


def test_a_fault_no_longer_than_the_usual_can_be_may_stay(make: Make, run: Command) -> None:
    ledger = recorded(make, np.where(FAULTY, FAULT, answers(1, 0.7)))
    found = without(run, ledger)
    assert found["again_hi_ns"] == pytest.approx(OWN + FAULT, rel=0.01), found


def test_what_is_usual_is_no_more_than_the_largest_there_is(make: Make, run: Command) -> None:
    """The quartiles of these waits lie ten powers of ten apart."""
    waits = np.array([1, 10, 10**10, 10**10 + 1] * 1000)
    found = without(run, recorded(make, waits))
    assert found["again_hi_ns"] == pytest.approx(10**10, rel=0.01), found


def test_a_cause_that_most_spans_lack_goes_whole(make: Make, run: Command) -> None:
    waits = np.where(np.arange(SPANS) % 3 == 0, answers(1, 0.35), 0)
    assert without(run, recorded(make, waits))["usual_ns"] == 0


def test_who_is_to_blame_in_all_spans_may_leave_the_usual_too(make: Make, run: Command) -> None:
    ledger = recorded(make, np.where(FAULTY, FAULT, answers(1, 0.35)))
    rewrite(ledger, "SELECT * EXCLUDE row, '10.0.0.2:80' AS downstream_by FROM {rows}")
    named, whole = without(run, ledger, "downstream:10.0.0.2:80"), without(run, ledger)
    assert named["usual_of"] == whole["usual_of"] == ["downstream"]
    for figure in ("predicted_ns", "usual_ns", "again_hi_ns"):
        assert named[figure] == pytest.approx(whole[figure], rel=0.01), figure


def test_an_engine_finds_the_same_as_memory(
    make: Make, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With interrupts whose penalty goes and stays with what they are part of."""
    waits = np.where(FAULTY, FAULT, answers(1, 0.35))
    struck = np.arange(SPANS) % 10 < 2
    irq = np.where(struck, 20_000, 0)
    ledger = make(wall_ns=OWN + waits + irq + 2 * irq, downstream_ns=waits, irq_ns=irq)
    asked = "downstream,running,irq"
    here = without(run, ledger, asked)
    monkeypatch.setattr("tailscope.engines.draw.IN_MEMORY", 0)
    assert without(run, ledger, asked) == here
    assert here["usual_of"] == ["downstream", "running"] and here["usual_ns"] > 0


def test_who_is_named_leaves_what_is_usual_already(make: Make, run: Command) -> None:
    ledger = recorded(make, np.where(FAULTY, FAULT, answers(1, 0.35)))
    who = "if(downstream_ns > 3000000, '10.0.0.2:80', '10.0.0.1:80')"
    rewrite(ledger, f"SELECT * EXCLUDE row, {who} AS downstream_by FROM {{rows}}")
    found = without(run, ledger, "downstream:10.0.0.2:80")
    came_true = np.quantile(OWN + answers(2, 0.35), 0.99)
    assert found["usual_ns"] == 0
    assert found["predicted_ns"] == pytest.approx(came_true, rel=0.03)


def test_the_text_says_what_comes_if_the_usual_stays(make: Make, run: Command) -> None:
    ledger = recorded(make, np.where(FAULTY, FAULT, answers(1, 0.35)))
    code, out, _ = run(ledger, "--without", "downstream")
    assert code == 0
    assert "if the usual variation of downstream stays" in flat(out), out


def test_causes_that_are_also_among_the_best_are_printed_once(make: Make, run: Command) -> None:
    waits = np.where(FAULTY, FAULT, answers(1, 0.35))
    locks = np.where(np.arange(SPANS) % 50 == 9, FAULT, 0)
    ledger = make(wall_ns=OWN + waits + locks, downstream_ns=waits, lock_ns=locks)
    code, out, _ = run(ledger, "-v", "--without", "downstream,lock")
    assert code == 0
    assert flat(out).count("without downstream + lock:") == 1, out
    assert "if the usual variation of downstream stays" in flat(out), out
