"""What becomes of a recording while the wall clock steps."""

from __future__ import annotations

from guest.session import Session
from recording import Record, Recording
from rig import ledger

#: Naps of a program, one a span, in s.
NAP = 0.3
NAPPING = f"sleepbench --every 1 --nap-us {NAP * 1e6:g} --seconds 600 >/dev/null & server=$!"
SOURCES = "sdk --span uprobe:sleepbench:work"


def ask(recording: Recording, expression: str, where: str = "TRUE") -> float:
    """What SQL says of all spans, by their source."""
    sql = f"SELECT {expression} FROM spans WHERE {where}"
    ((value,),) = ledger.query(recording.ledger, sql)
    return value


def check_naps(recording: Recording) -> None:
    """Every nap took as long as it did on the clock that it was by, from either source."""
    ledger.check_books(recording.ledger)
    for span in ("nap", "work"):
        where = f"span = '{span}'"
        assert ask(recording, "count(*)", where) > 10
        # Emulated, what a nap takes beyond its length can be long. Less is wrong by any measure.
        assert ask(recording, "min(wall_ns)", where) >= NAP * 0.99e9
        # It sleeps from when it has left its CPU: emulated, ms after its timer began.
        assert ask(recording, "min(sleep_ns)", where) >= NAP * 0.9e9
        assert ask(recording, "median(sleep_ns)", where) >= NAP * 0.99e9
        assert ask(recording, "median(wall_ns)", where) < NAP * 2e9
        assert ask(recording, "max(wall_ns)", where) < NAP * 7e9


def test_a_step_of_the_wall_clock_bends_no_span(record: Record, guest: Session) -> None:
    step = "date -s @$(( $(date +%s) {} )) >/dev/null"
    recording = record.server(
        NAPPING,
        SOURCES,
        f"sleep 2; {step.format('+ 3600')}; sleep 2; {step.format('- 7200')}; sleep 2; "
        f"{step.format('+ 3600')}",
    )
    check_naps(recording)
    # On one axis from the first to the last.
    took = ask(recording, "max(start_ns) - min(start_ns)")
    assert 4e9 < took < 60e9
    apart = "SELECT start_ns - lag(start_ns) OVER (ORDER BY start_ns) AS apart FROM spans"
    ((gap,),) = ledger.query(recording.ledger, f"SELECT max(apart) FROM ({apart})")
    assert gap < took / 2
    # One that is open while recording begins may be given up, and is counted then.
    assert recording.lost.get("abandoned", 0) <= 1
    assert not recording.lost.keys() - {"abandoned"}
