"""Which rows are written: all of the tail, a share of the others, and what they then stand for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from conftest import Record
from rig import installed, ledger
from rig.recorder import about
from rig.servers import load, memcached

#: Small shares, so that most rows are left out within a second or two.
TAIL_AND_SOME = ("--tail", "p99", "--keep", "2%")


def check_weights(recorded: Path) -> None:
    """The rows stand for all spans that were seen, to within what chance allows."""
    ((total, variance),) = ledger.query(
        recorded, "SELECT sum(weight), sum(weight * (weight - 1)) FROM spans"
    )
    seen = about(recorded)["seen"]
    assert abs(total - seen) <= 5 * math.sqrt(variance) + 1, (total, seen, variance)


def test_every_span_of_the_tail_is_written(record: Record) -> None:
    naps = [installed.LAB / "sleepbench", "--spans", 60000, "--every", 500, "--nap-us", 5000]
    naps += ["--seconds", 600]
    recorder = record("--span", "sdk", *TAIL_AND_SOME, "--", *naps)
    planted = recorder.wait().clean().json()["planted"]["spans"]
    told = about(recorder.ledger)
    assert (told["tail"], told["keep"], told["seen"]) == (0.99, 0.02, 60000)
    assert told["rows"] < told["seen"] / 2, told
    # By their length: the machine may add others as long, but can't make a nap shorter.
    assert ledger.count(recorder.ledger, "wall_ns >= 5000000 AND weight = 1") >= planted
    assert ledger.count(recorder.ledger, "wall_ns >= 5000000 AND weight > 1") == 0
    check_weights(recorder.ledger)


def test_the_tail_of_a_servers_requests_is_written(record: Record) -> None:
    with memcached(0) as server:
        source = ("--span", "syscall:recv..send")
        recorder = record("-p", server.pid, *source, *TAIL_AND_SOME).ready()
        with load(server, "--rate", 3000, "-d", "5s") as client:
            client.wait().clean()
        recorder.interrupt().clean()
    told = about(recorder.ledger)
    assert told["rows"] < told["seen"] / 2, told
    assert ledger.count(recorder.ledger, "weight > 1") > 0
    check_weights(recorder.ledger)


def test_a_budget_bounds_the_ledger(record: Record) -> None:
    bench = [installed.LAB / "loopbench", "--seconds", 6, "--iterations", 2000, "--think-us", 20]
    recorder = record("--span", "sdk", "--budget", "5KB/s", "--", *bench)
    recorder.wait().clean()
    told = about(recorder.ledger)
    assert told["budget"] == 5000
    # Until it was steered for the first time, all was written.
    first = ledger.count(
        recorder.ledger, "start_ns < (SELECT min(start_ns) FROM spans) + 1000000000"
    )
    late = told["rows"] - first
    row_bytes = told["bytes"] / told["rows"]
    assert late * row_bytes < 1.5 * 5000 * 5, (told, first)
    assert late < told["seen"] / 2, told
    check_weights(recorder.ledger)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--tail", "p100"], ["p100", "percentile"]),
        (["--tail", "slow"], ["slow", "percentile"]),
        (["--budget", "0"], ["0", "bytes a second"]),
        (["--budget", "1 parsec"], ["parsec", "bytes a second"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_what_to_keep_is_checked(options: list[str], says: list[str], record: Record) -> None:
    ended = record("-p", "1", *options).wait()
    assert ended.code == 2
    assert all(word in ended.err for word in says), ended.err
