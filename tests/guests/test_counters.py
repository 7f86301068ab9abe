"""Hardware counters against known truth: on arm64 the emulated PMU counts each instruction."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from itertools import combinations

import pytest
from guest import ROOT
from guest.session import Session
from recording import Record, Recording, pages_before_and_after
from rig import ledger

LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
KINDS = ("plain", "yields", "sleeps")
#: Of the Rust SDK's program also the last of sixteen that are open, and such as overlap another:
#: these hold that one's begin or end, too, some hundred instructions.
RUST_KINDS = (*KINDS, "deep")
OVERLAPPING = ("first", "second")
SPANS = 30
#: Instructions of a round of `paced`, and about how many its loop takes around them.
ROUND, AROUND = 100_000, 10
#: More than the six general counters of the emulated CPU: they must take turns.
MANY = ("instructions", "r8", "r0", "r3c", "r23", "r24", "stall_backend", "cycles")


@pytest.fixture
def counting(guest: Session) -> Iterator[None]:
    """A guest whose programs may read their counters."""
    if guest.kernel.architecture != "arm64":
        pytest.skip("only the emulated arm64 has counters")
    guest.run("sysctl", "-w", "kernel.perf_user_access=1").clean()
    yield
    guest.run("sysctl", "-w", "kernel.perf_user_access=0").clean()


def wrong(recording: Recording) -> dict[tuple[str, int], int]:
    """Spans of each kind and length whose instructions were off by more than one in a hundred."""
    rows = ledger.query(
        recording.ledger,
        "SELECT span, id, count(*) FILTER (abs(instructions - id) > 0.01 * id) "
        "FROM spans GROUP BY span, id",
    )
    return {(span, length): count for span, length, count in rows}


def test_instructions_are_those_of_the_span(counting: None, record: Record) -> None:
    lengths = ",".join(map(str, LENGTHS))
    recording = record(
        *("--counters", "instructions,cycles", "--"),
        *("countbench", "--spans", SPANS, "--lengths", lengths),
    )
    ledger.check_books(recording.ledger)
    assert ledger.count(recording.ledger) == SPANS * len(KINDS) * len(LENGTHS)
    assert ledger.count(recording.ledger, "instructions IS NULL OR cycles IS NULL") == 0
    assert ledger.count(recording.ledger, "span = 'sleeps' AND sleep_n > 0") > 0
    found = wrong(recording)
    assert set(found) == {(kind, length) for kind in KINDS for length in LENGTHS}
    # A switch in the very middle of a reading has it read again: that is some 100 instructions.
    assert max(found.values()) <= 1, found


def test_instructions_in_rust_are_those_of_the_span(counting: None, record: Record) -> None:
    recording = record(
        *("--counters", "instructions,cycles", "--"),
        *("instructions", SPANS, 100, *LENGTHS),
    )
    ledger.check_books(recording.ledger)
    found = wrong(recording)
    kinds = (*RUST_KINDS, *OVERLAPPING, "deeper")
    known = {(kind, length) for kind in kinds for length in LENGTHS}
    # A span that another thread ends is no row: its counters would be those of two threads.
    assert set(found) - {("other", None)} == known
    assert ledger.count(recording.ledger, "span <> 'other'") == SPANS * len(known)
    # Open beside sixteen others: null, and nothing else is.
    assert ledger.count(recording.ledger, "(span = 'deeper') <> (instructions IS NULL)") == 0
    assert ledger.count(recording.ledger, "span = 'sleeps' AND sleep_n > 0") > 0
    exact = [found[kind, length] for kind in RUST_KINDS for length in LENGTHS]
    long = [found[kind, length] for kind in OVERLAPPING for length in LENGTHS[2:]]
    assert max(exact + long) <= 1, found
    overlapping = "span IN ('first', 'second') AND instructions < id"
    assert ledger.count(recording.ledger, overlapping) == 0


@pytest.mark.parametrize(
    "program",
    [
        "countbench --alone --lengths 1000 --spans 5000 --nap-us 2000",
        "instructions alone 5000 2000 1000",
    ],
    ids=["c", "rust"],
)
def test_access_that_is_switched_off_ends_the_values_and_not_the_program(
    counting: None, guest: Session, record: Record, program: str
) -> None:
    # As soon as rows come, user space is kept from its counters.
    recording = record.server(
        f"{program} & server=$!",
        "sdk --counters instructions",
        "usleep 500000; sysctl -w kernel.perf_user_access=0 >/dev/null; wait $server || exit 8",
    )
    spans = ledger.count(recording.ledger)
    counted = ledger.count(recording.ledger, "instructions IS NOT NULL")
    assert 0 < counted < spans
    # Once it is off, it is off.
    first = (
        "SELECT min(start_ns) FROM spans "
        "WHERE instructions IS NULL AND id = 1000 AND cpu = -1 AND span <> 'deeper'"
    )
    last = "SELECT max(start_ns) FROM spans WHERE instructions IS NOT NULL"
    ((begin,),), ((end,),) = (ledger.query(recording.ledger, sql) for sql in (first, last))
    assert end < begin


def test_a_reading_that_faults_is_passed_over(guest: Session) -> None:
    """The program of the C tests, for this architecture, where a reading faults for real."""
    if guest.kernel.architecture != "arm64":
        pytest.skip("on this machine's own architecture it is among the tests in tests/c")
    program = guest.share / "counters"
    source = ROOT / "tests" / "c" / "counters.c"
    options = ["-O2", "-static", "-pthread", f"-I{ROOT / 'sdk' / 'c'}"]
    subprocess.run(
        ["aarch64-linux-gnu-gcc", *options, source, "-o", program], check=True, timeout=120
    )
    guest.run("sysctl", "-w", "kernel.perf_user_access=0").clean()
    guest.run("/share/counters").clean()


def test_events_that_do_not_fit_take_turns_and_every_pair_meets(
    counting: None, record: Record
) -> None:
    # Time asleep costs the emulator nothing, so there are many turns.
    naps = ["--alone", "--lengths", 1000, "--spans", 150, "--nap-us", 100_000]
    recording = record("--counters", ",".join(MANY), "--", "countbench", *naps)
    counters = recording.about["counters"]
    assert [one["column"] for one in counters if one["counted"]] == list(MANY)
    assert "groups, switched every" in recording.about["ladder"]["counters"]["rung"]
    known = " + ".join(f"({name} IS NOT NULL)::INT" for name in MANY)
    ((most,),) = ledger.query(recording.ledger, f"SELECT max({known}) FROM spans")
    assert 2 <= most < len(MANY)
    for one, other in combinations(MANY, 2):
        both = f"{one} IS NOT NULL AND {other} IS NOT NULL"
        assert ledger.count(recording.ledger, both) > 0, both
    assert ledger.count(recording.ledger, "abs(instructions - r8) > 10") <= 1
    assert max(wrong(recording).values()) <= 1


def test_where_programs_may_not_read_the_columns_are_null(guest: Session, record: Record) -> None:
    if guest.kernel.architecture != "arm64":
        pytest.skip("on x86-64 the emulated machines have no counters")
    recording = record(
        *("--counters", "instructions", "--"),
        *("countbench", "--spans", 10, "--lengths", 1000),
    )
    assert ledger.count(recording.ledger) == 10 * len(KINDS)
    assert ledger.count(recording.ledger, "instructions IS NOT NULL") == 0
    rung = recording.about["ladder"]["counters"]
    assert rung["rung"] is None
    assert "kernel.perf_user_access=1" in rung["why"]


def test_an_observer_counts_the_instructions_of_a_thread(guest: Session) -> None:
    if guest.kernel.architecture != "arm64":
        pytest.skip("only the emulated arm64 has counters")
    # Of a round the program knows its instructions, but for some ten around them; time is counted
    # in instructions too. With one CPU the observer sleeps between samples, of two milliseconds.
    script = f"""
paced --instructions {ROUND} --seconds 600 >/dev/null & program=$!
made() {{ grep -qs tailscope-channels /proc/$program/maps; }}
for try in $(seq 200); do made && break; usleep 20000; done
tailscope observe --quiet --json --no-pauses --duration 500ms --period 125000 \\
    --signal counter:$program:instructions --signal counter:$program:cycles \\
    --signal channel:$program:rounds
code=$?
kill $program
exit $code
"""
    told = json.loads(guest.shell(script, 200).clean().out)
    instructions, cycles, rounds = (rate["all_per_second"] for rate in told["rates"])
    assert told["samples"] > 100
    assert instructions / rounds == pytest.approx(ROUND + AROUND, rel=0.001)
    assert instructions / cycles == pytest.approx(1, rel=0.001)
    assert told["ratio"] == pytest.approx(1, rel=0.001)


def test_an_observer_reads_its_counters_in_user_space(counting: None, guest: Session) -> None:
    ended = guest.run("tailscope", "observe", "--self-test", "--json", seconds=120).clean()
    counted = json.loads(ended.out)["counters"]["counted"]
    # Time is counted in instructions: as many cycles.
    assert counted["instructions"] == pytest.approx(counted["executed"], rel=0.001)
    assert counted["ipc"] == pytest.approx(1, rel=0.001)


@pytest.mark.parametrize(
    "program",
    [
        "countbench --alone --lengths 1000 --spans 100000 --nap-us 20000",
        "instructions alone 100000 20000 1000",
    ],
    ids=["c", "rust"],
)
def test_nothing_is_counted_any_more_when_the_recorder_has_gone(
    counting: None, guest: Session, program: str
) -> None:
    assert pages_before_and_after(guest, program) == (1, 0)
