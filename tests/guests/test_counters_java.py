"""Counters of the Java SDK against known truth, and what comes of readings that fault in a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from guest import Unavailable, java
from guest.session import Session
from recording import Record, pages_before_and_after
from rig import ledger
from rig.java import CLASSES, JAR

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
KINDS = ("plain", "yields", "sleeps")
SPANS = 30
#: Rounds of three spans each, enough for HotSpot to compile what they call.
WARM, WARM_LENGTH = 10_000, 1_000
#: Instructions that a compiled call of the loop takes.
CALL = 41
#: How much of that what is taken off for begin and end may be too much or too little, once all is
#: compiled. In five runs it was 5 instructions at most.
FAR = 0.01 * (WARM_LENGTH + CALL)


@pytest.fixture(scope="session")
def jvm(guest: Session) -> Session:
    """A guest with Java."""
    if guest.kernel.architecture != "arm64":
        pytest.skip("only the emulated arm64 has counters")
    try:
        java.install(guest, JAR, CLASSES)
    except Unavailable as reason:
        pytest.skip(str(reason))
    return guest


@pytest.fixture
def counting(jvm: Session) -> Iterator[None]:
    """A guest whose programs may read their counters."""
    jvm.run("sysctl", "-w", "kernel.perf_user_access=1").clean()
    yield
    jvm.run("sysctl", "-w", "kernel.perf_user_access=0").clean()


def test_readings_that_fault_are_passed_over_among_a_jvms_own_faults(jvm: Session) -> None:
    jvm.run("sysctl", "-w", "kernel.perf_user_access=0").clean()
    lines = jvm.shell(f"{java.COMMAND} tailscope.Faulting", 200).clean().out.splitlines()
    told = [json.loads(line) for line in lines]
    assert len(told) == 3
    for thread in told[:2]:
        assert thread["refused"] == thread["of"] > 0
        assert thread["nulls"] == thread["of"] // 10
        assert thread["overflows"] > 0
    assert told[2] == {"guarded": True}


def test_instructions_are_those_of_the_span(counting: None, record: Record) -> None:
    recording = record(
        *("--span", "sdk", "--counters", "instructions,cycles", "--"),
        *(java.COMMAND, "tailscope.Counting", WARM, SPANS, 100, 1, *LENGTHS),
    )
    ledger.check_books(recording.ledger)
    assert not recording.lost
    assert ledger.count(recording.ledger, "span = 'warm'") == 3 * WARM
    rows = ledger.query(
        recording.ledger,
        "SELECT span, id, count(instructions), median(instructions - id), "
        "count(*) FILTER (instructions IS NULL OR abs(instructions - id) > 0.01 * id) "
        "FROM spans WHERE span <> 'warm' GROUP BY span, id",
    )
    assert {row[:3] for row in rows} == {(kind, n, SPANS) for kind in KINDS for n in LENGTHS}
    for kind, length, _, more, wrong in rows:
        # What the JVM executes to call the loop is the span's own, until that is compiled too.
        assert CALL - FAR < more <= 1000, rows
        assert length < 100_000 or wrong <= 1, (kind, rows)
    assert ledger.count(recording.ledger, "span = 'sleeps' AND sleep_n > 0") > 0
    # Interpreted, an empty span counts thousands of instructions. Where that had been measured
    # before its code was compiled and not since, a short one would be 0, or null.
    last = "(FROM spans WHERE span = 'warm' ORDER BY start_ns DESC LIMIT 5000)"
    off = f"abs(coalesce(instructions, 0) - {WARM_LENGTH + CALL})"
    ((most,),) = ledger.query(recording.ledger, f"SELECT quantile_cont({off}, 0.99) FROM {last}")
    assert most < FAR
    assert ledger.count(recording.ledger, "instructions IS NULL") < 0.01 * 3 * WARM


def test_access_that_is_switched_off_ends_the_values_and_not_the_jvm(
    counting: None, record: Record
) -> None:
    recording = record.server(
        f"{java.COMMAND} tailscope.Counting 0 4000 2000 0 1000 & server=$!",
        "sdk --counters instructions",
        "for try in $(seq 300); do grep -qs perf_event /proc/$server/maps && break; usleep 100000; "
        "done; usleep 500000; sysctl -w kernel.perf_user_access=0 >/dev/null; "
        "wait $server || exit 8",
    )
    spans = ledger.count(recording.ledger)
    assert 0 < ledger.count(recording.ledger, "instructions IS NOT NULL") < spans
    first = "SELECT min(start_ns) FROM spans WHERE instructions IS NULL"
    last = "SELECT max(start_ns) FROM spans WHERE instructions IS NOT NULL"
    ((begin,),), ((end,),) = (ledger.query(recording.ledger, sql) for sql in (first, last))
    assert end < begin  # once it is off, it is off


def test_nothing_is_counted_any_more_when_the_recorder_has_gone(
    counting: None, jvm: Session
) -> None:
    program = f"{java.COMMAND} tailscope.Counting 0 100000 20000 0 1000"
    assert pages_before_and_after(jvm, program) == (1, 0)
