"""MariaDB, which has no probes, by the function that every command of a client goes through."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Record
from rig import ledger
from rig.mariadb import PROGRAM, MariaDb
from rig.recorder import about

#: As its source calls it; the symbol is _Z16dispatch_command19enum_server_commandP3THDPcjb.
COMMAND = f"command=uprobe:{PROGRAM}:dispatch_command"
#: Numbers of commands in the protocol, the function's first argument.
COM_QUIT, COM_QUERY = 1, 3

CLIENTS, QUERIES = 4, 250


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    # Not one of pytest's folders: each pytest that starts closes them to other users.
    with tempfile.TemporaryDirectory(prefix="tailscope-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with MariaDb(folder) as running:
            yield running
            assert running.stop(seconds=60).code == 0


def of_text(folder: Path, text: str) -> int:
    return ledger.count(folder, f"span = '{text}'")


def test_every_query_of_every_client_is_recorded(record: Record, server: MariaDb) -> None:
    source = f"{COMMAND}(id=arg0,name=arg2)"
    recorder = record("-p", server.pid, "--span", source).ready()
    # Each client connects, asks its share of the queries, and quits.
    server.slap(
        *(f"--concurrency={CLIENTS}", f"--number-of-queries={CLIENTS * QUERIES}"),
        *("--query=SELECT 42", "--iterations=1", "--no-drop", "--create-schema=mysql"),
    )
    server.wait_for_quiet()
    recorder.interrupt().clean()
    assert of_text(recorder.ledger, "SELECT 42") == CLIENTS * QUERIES
    assert ledger.query(
        recorder.ledger, "SELECT DISTINCT id FROM spans WHERE span = 'SELECT 42'"
    ) == [(COM_QUERY,)]
    # Each said goodbye, and so did slap itself, and who asked for quiet.
    assert ledger.count(recorder.ledger, f"id = {COM_QUIT}") >= CLIENTS
    told = about(recorder.ledger)
    assert told["seen"] == ledger.count(recorder.ledger)
    lost = ("ring_full", "threads", "depth", "processes")
    assert sum(told["lost"][k] for k in lost) == 0, told["lost"]
    ledger.check_books(recorder.ledger)


def test_the_text_of_a_query_can_be_its_name(record: Record, server: MariaDb) -> None:
    source = "uprobe:mariadbd:dispatch_command(id=arg0,name=arg2)"
    recorder = record("-p", server.pid, "--span", source).ready()
    answers = server.sql("SELECT 1;\nSELECT 22;\nSELECT 1;\n")
    recorder.interrupt().clean()
    assert answers.split() == ["1", "22", "1"]
    assert of_text(recorder.ledger, "SELECT 1") == 2
    assert of_text(recorder.ledger, "SELECT 22") == 1


def test_sleeping_is_seen_as_waiting(record: Record, server: MariaDb) -> None:
    recorder = record("-p", server.pid, "--span", f"{COMMAND}(name=arg2)").ready()
    server.sql("SELECT SLEEP(0.2);\n")
    recorder.interrupt().clean()
    ((wall_ns, waited_ns),) = ledger.query(
        recorder.ledger,
        f"SELECT wall_ns, {ledger.sum_of(['lock', 'sleep', 'network', 'io'])} FROM spans "
        "WHERE span LIKE 'SELECT SLEEP%'",
    )
    assert wall_ns >= 200e6
    assert waited_ns >= 190e6


def test_a_name_that_is_not_there_is_answered_with_those_that_are(
    record: Record, server: MariaDb
) -> None:
    ended = record("-p", server.pid, "--span", f"uprobe:{PROGRAM}:dispatch_comand").wait()
    assert ended.code != 0
    assert "dispatch_command" in ended.err
    assert "_Z" not in ended.err
