"""Measurements wait for a quiet machine, but not for ever."""

import pytest
from rig import quiet
from rig.quiet import Quiet


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that only naps move on; the list has what was slept."""
    slept: list[float] = []
    monkeypatch.setattr(quiet.time, "sleep", slept.append)
    monkeypatch.setattr(quiet.time, "monotonic", lambda: sum(slept))
    return slept


def test_it_goes_on_as_soon_as_the_machine_is_quiet(
    naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shares = iter([0.4, 0.3, 0.0])
    monkeypatch.setattr(quiet, "held_up", lambda: next(shares))
    assert Quiet().wait() == ""
    assert len(naps) == 2


def test_all_measurements_of_a_run_share_the_patience(
    naps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quiet, "held_up", lambda: 0.4)
    waits = Quiet()
    assert "40% of the time" in waits.wait()
    assert sum(naps) == pytest.approx(quiet.PATIENCE_S)
    assert "40% of the time" in waits.wait()
    assert sum(naps) == pytest.approx(quiet.PATIENCE_S)
    assert "2 began on one that was not" in waits.summary()


def test_a_quiet_run_says_nothing(naps: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "held_up", lambda: 0.0)
    waits = Quiet()
    assert waits.wait() == "" == waits.summary()


def test_round_trips_take_part_of_the_time() -> None:
    assert quiet.held_up() >= 0
