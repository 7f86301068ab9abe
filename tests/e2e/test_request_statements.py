"""Names of `--span request` for databases: each statement is one kind, without its values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from rig import ledger
from rig.mariadb import MariaDb
from rig.postgres import Cluster
from rig.recorder import Recorder

CLIENTS, TRANSACTIONS = 2, 100
ALL = CLIENTS * TRANSACTIONS
#: What pgbench's own script, TPC-B, sends for a transaction. Where a statement is longer than what
#: is read of it, its name ends with the first value.
SIMPLE = {
    "BEGIN": ALL,
    "UPDATE pgbench_accounts SET abalance = abalance + ?…": ALL,
    "SELECT abalance FROM pgbench_accounts WHERE aid = ?": ALL,
    "UPDATE pgbench_tellers SET tbalance = tbalance + ?…": ALL,
    "UPDATE pgbench_branches SET bbalance = bbalance + ?…": ALL,
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) V…": ALL,
    "END": ALL,
}


@pytest.mark.parametrize("mode", ["simple", "prepared"])
def test_each_statement_of_pgbench_has_its_name(
    mode: str, record: Callable[..., Recorder], folder: Path
) -> None:
    with Cluster(folder) as cluster:
        cluster.pgbench("-i", "-q", "-s", 1)
        recorder = record("--span", "request", "-p", cluster.pid).ready()
        cluster.pgbench("-M", mode, "-c", CLIENTS, "-t", TRANSACTIONS, "-n")
        recorder.interrupt().clean()
        found = ledger.count_by_span(recorder.ledger)
        cluster.end()
    if mode == "simple":
        assert {name: found.get(name) for name in SIMPLE} == SIMPLE, found
        return
    # A client prepares each statement once, and then executes it by its name.
    for begin in ("BEGIN", "END", "UPDATE pgbench_accounts", "SELECT abalance", "INSERT INTO"):
        counts = [count for name, count in found.items() if name.startswith(begin)]
        assert len(counts) == 1, found
        assert ALL <= counts[0] <= ALL + CLIENTS, found
    assert "EXECUTE" not in found, found


def test_each_statement_of_mariadb_has_its_name(
    record: Callable[..., Recorder], folder: Path
) -> None:
    with MariaDb(folder) as server:
        server.sql("CREATE DATABASE lab; CREATE TABLE lab.t (a INT, b TEXT);\n")
        recorder = record("--span", "request", "-p", server.pid).ready()
        rows = "".join(f"INSERT INTO lab.t VALUES ({n}, 'secret');\n" for n in range(ALL))
        server.sql(rows + "SELECT b FROM lab.t WHERE a IN (1, 2, 3);\n")
        recorder.interrupt().clean()
        found = ledger.count_by_span(recorder.ledger)
    assert found["INSERT INTO lab.t VALUES (?)"] == ALL, found
    assert found["SELECT b FROM lab.t WHERE a IN (?)"] == 1, found
    assert not any("secret" in name for name in found), found
