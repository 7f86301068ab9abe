"""PostgreSQL, never prepared and never restarted: its own probes begin and end the spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Record
from rig import ledger
from rig.postgres import Cluster
from rig.recorder import about

QUERY = "query=usdt:postgres:postgresql:query__start..query__done"
TRANSACTION = "transaction=usdt:postgres:postgresql:transaction__start..transaction__commit"

CLIENTS, TRANSACTIONS = 4, 250
#: What pgbench's own script, TPC-B, sends for a transaction: BEGIN, five statements, END.
STATEMENTS = 7


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder) as running:
        running.pgbench("-i", "-q", "-s", 1)
        yield running
        running.end()


def number(report: str, what: str) -> float:
    found = re.search(rf"{what}\D*([\d.]+)", report)
    assert found, report
    return float(found[1])


def test_every_query_of_pgbench_is_recorded(record: Record, cluster: Cluster) -> None:
    recorder = record("-p", cluster.pid, "--span", QUERY, "--span", TRANSACTION).ready()
    report = cluster.pgbench("-c", CLIENTS, "-t", TRANSACTIONS, "-n")
    recorder.interrupt().clean()
    done = int(number(report, "number of transactions actually processed:"))
    assert done == CLIENTS * TRANSACTIONS

    # Before it starts its clients, pgbench asks a few queries of its own.
    by_backend = dict(
        ledger.query(
            recorder.ledger, "SELECT pid, count(*) FROM spans WHERE span = 'query' GROUP BY pid"
        )
    )
    clients = [n for n in by_backend.values() if n == TRANSACTIONS * STATEMENTS]
    assert len(clients) == CLIENTS, by_backend
    assert sum(by_backend.values()) - sum(clients) < 20
    assert cluster.pid not in by_backend, "backends ask, not the postmaster"

    told = about(recorder.ledger)
    assert sum(told["lost"][k] for k in ("ring_full", "threads", "depth", "processes")) == 0
    ledger.check_books(recorder.ledger)


def test_what_the_server_saw_fits_in_what_pgbench_saw(record: Record, cluster: Cluster) -> None:
    recorder = record("-p", cluster.pid, "--span", QUERY).ready()
    report = cluster.pgbench("-c", 1, "-t", 1000, "-n", "-S")
    recorder.interrupt().clean()
    seen_ns = number(report, "latency average = ") * 1e6
    ((rows, mean_ns, p50_ns),) = ledger.query(
        recorder.ledger,
        "SELECT count(*), avg(wall_ns), median(wall_ns) FROM (SELECT *, count(*) "
        "OVER (PARTITION BY pid) AS of_backend FROM spans) WHERE of_backend = 1000",
    )
    assert rows == 1000
    # A query is part of what its client waits for; the rest is the way there and back.
    assert seen_ns / 100 < mean_ns < seen_ns
    assert 0 < p50_ns < seen_ns
    explained = ledger.explain(recorder.ledger, options=("--span", "query"))
    assert explained["p50_ns"] == pytest.approx(p50_ns, rel=0.25)


def test_a_query_that_fails_makes_no_span_and_harms_no_other(
    record: Record, cluster: Cluster
) -> None:
    recorder = record("-p", cluster.pid, "--span", QUERY).ready()
    answers = cluster.sql("SELECT 1;\nSELECT 1/0;\nSELECT 2;\nSELECT no_such;\nSELECT 3;\n")
    recorder.interrupt().clean()
    assert answers.split() == ["1", "2", "3"]
    assert ledger.count(recorder.ledger) == 3
    assert about(recorder.ledger)["lost"]["abandoned"] == 2


def test_the_text_of_a_query_can_be_its_name(record: Record, cluster: Cluster) -> None:
    source = "usdt:postgres:postgresql:query__start(name=arg0)..query__done"
    recorder = record("-p", cluster.pid, "--span", source).ready()
    cluster.sql("SELECT 1;\nSELECT 22;\nSELECT 1;\n")
    recorder.interrupt().clean()
    found = dict(ledger.query(recorder.ledger, "SELECT span, count(*) FROM spans GROUP BY span"))
    assert found == {"SELECT 1;": 2, "SELECT 22;": 1}
