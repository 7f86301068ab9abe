"""Other engines give the answers that DuckDB gives; one that can't be reached is one sentence."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pytest
import servers
import tailscope
from conftest import Make
from explain_synthetic import START_NS, World
from expressions import QUESTIONS, Question
from tailscope.cli import main
from tailscope.diff_cli import main as diff_main
from tailscope.engines.connect import connect
from tailscope.engines.grid import bin_of, bins_of
from tailscope.engines.measure import walls as measured_walls
from tailscope.engines.overview import look_over
from tailscope.engines.spans import spans_named
from tailscope.engines.timed import Timed
from tailscope.errors import MachineError, TailscopeError
from tailscope.statistics.diff import diff
from tailscope.statistics.explanation import explain
from tailscope.statistics.replay import with_queue
from tailscope.statistics.target import Target

#: Spark as a cluster of its own with a master and a worker; ClickHouse's engine behind a door.
#: The cluster takes more than a minute.
KINDS = ("clickhouse", pytest.param("spark", marks=pytest.mark.more))
#: What nulls are shown as where answers are compared.
NULL = -(1 << 62)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where servers keep their logs and files."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[tuple[str, str]]:
    """The addresses of a cluster's master and of a Connect server."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none")
    with servers.spark_cluster(folder) as addresses:
        yield addresses


@pytest.fixture(scope="module", params=KINDS)
def engine(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The address of each engine in turn."""
    if request.param == "clickhouse":
        pytest.importorskip("chdb", reason="chDB is not installed (requirements-extras.lock)")
        with servers.clickhouse(folder) as address:
            yield address
        return
    master, _ = request.getfixturevalue("spark")
    from tailscope.engines.spark import session

    # One for all tests: a new one takes seconds each time.
    made, _ = session(master)
    yield master
    made.stop()


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """All questions go to the engine: small ledgers would be answered here."""
    monkeypatch.setattr("tailscope.engines.draw.IN_MEMORY", 0)


def whole(values: np.ndarray) -> list:
    """Whole numbers as such: DuckDB's sums are 128 bits wide and come as floats."""
    return [int(v) if isinstance(v, float) and v.is_integer() else v for v in values.tolist()]


def elsewhere(code: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own: one process has one Spark."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def complaint(answer: subprocess.CompletedProcess[str]) -> str:
    """The one line of the command itself; Spark writes its own whenever its Java comes to it."""
    (line,) = (one for one in answer.stderr.splitlines() if one.startswith("tailscope explain: "))
    return line


def two_hosts(make: Make) -> list[Path]:
    """Two recordings: uneven weights, a cause that one of them lacks, awkward names of folders."""
    rng = np.random.default_rng(11)

    def columns(rows: int) -> dict[str, np.ndarray]:
        lock = np.where(rng.random(rows) < 0.05, rng.integers(10_000, 900_000, rows), 0)
        irq = rng.integers(0, 3_000, rows)
        base = rng.lognormal(10.5, 0.3, rows).astype(np.int64)
        return {
            "wall_ns": base + lock + irq,
            "lock_ns": lock,
            "lock_n": (lock > 0).astype(np.int64),
            "irq_ns": irq,
            "weight": rng.integers(1, 4, rows),
        }

    world = World(3_000, seconds=3.0, absent={"irq": "not here"})
    first = make("a [1] {b}*?'", **columns(4_000))
    late = START_NS + 10**13 + np.arange(3_000) * 1_000_000
    other = columns(3_000)
    other["wall_ns"] = other["wall_ns"] - other.pop("irq_ns")
    return [first, make("plain", world=world, start_ns=late, **other)]


def same(one: object, other: object, where: str = "") -> None:
    """Equal, but for the order in which floats were added up."""
    assert type(one) is type(other), where
    if isinstance(one, dict) and isinstance(other, dict):
        assert one.keys() == other.keys(), where
        for name in one:
            same(one[name], other[name], f"{where}.{name}")
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple):
        assert len(one) == len(other), where
        for number, (mine, yours) in enumerate(zip(one, other, strict=True)):
            same(mine, yours, f"{where}[{number}]")
    elif isinstance(one, float):
        assert other == pytest.approx(one, rel=1e-9, abs=1e-6), where
    else:
        assert one == other, where


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_an_engine_answers_each_kind_of_expression_as_duckdb_does(
    engine: str, question: Question, make: Make
) -> None:
    ledgers = two_hosts(make)
    answers = []
    for address in ("duckdb", engine):
        with connect(tailscope.open(*ledgers, engine=address)) as opened:
            found = opened.run(question(opened.keep(opened.table())))
        columns = {name: whole(np.ma.filled(found[name], NULL)) for name in found}
        answers.append(sorted(zip(*columns.values(), strict=True), key=repr))
        assert all(values.dtype.kind in "ifO" for values in found.values())
    assert len(answers[0]) > 0
    same(*answers)


def test_an_engine_explains_as_duckdb_does(
    engine: str, make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [str(ledger) for ledger in two_hosts(make)] + ["--json", "--quiet"]
    found = []
    for chosen in ([], ["--engine", engine]):
        assert main(arguments + chosen) == 0
        found.append(json.loads(capsys.readouterr().out))
    assert found[0]["causes"][0]["name"] == "lock"
    same(*found)


@pytest.mark.more
def test_an_engine_draws_the_same_rows_and_cuts_the_same_segments(
    engine: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.engines.draw.QUOTA", (300, 400, 20))
    monkeypatch.setattr("tailscope.statistics.subset.MANY", 0)
    (first, _) = two_hosts(make)
    expected, found = (
        explain(
            tailscope.open(first, engine=address), Target(99), None, 1, segment_ns=10**9
        ).to_dict()
        for address in ("duckdb", engine)
    )
    assert expected["shapley"]["is_sample"]
    assert len(expected["segments"]["segments"]) == 4
    same(expected, found)


def test_an_engine_replays_the_same_pieces(
    engine: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.statistics.replay.QUOTA", 1_000)
    rng = np.random.default_rng(13)
    lock = np.where(rng.random(4_000) < 0.1, 1_000_000, 0)
    wall = rng.integers(100_000, 2_000_000, 4_000) + lock
    queue = rng.integers(0, 50_000, 4_000)
    tid = np.arange(4_000) % 3
    ledger = make(wall_ns=wall, lock_ns=lock, queue_ns=queue, pid=np.ones(4_000), tid=tid)
    answers = []
    for address in ("duckdb", engine):
        opened = tailscope.open(ledger, engine=address)
        with connect(opened) as running:
            overview, rows = look_over(running, opened)
            spans = spans_named(running, rows, overview, opened, "recv..send")
            walls = Timed.of(measured_walls(spans), spans.blocks)
            queued = with_queue(spans, walls, 5).queued
        assert queued is not None
        answers.append(queued.answers)
    expected, found = answers
    assert 300 < len(found.start) < 700
    assert np.count_nonzero(found.rows.weight) > 200
    assert found.first.sum() > 3 * 50
    for name in ("start", "first", "opened"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for name in ("wall", "weight", "block"):
        assert np.array_equal(getattr(found.rows, name), getattr(expected.rows, name))
    assert found.rows.values.keys() == expected.rows.values.keys()
    for name, values in expected.rows.values.items():
        assert np.array_equal(found.rows.values[name], values)


@pytest.mark.more
def test_an_engine_finds_what_strikes_leave_cold_as_duckdb_does(engine: str, make: Make) -> None:
    rng = np.random.default_rng(12)
    struck = np.arange(4_000) % 50 < 4
    irq = np.where(struck, 20_000, 0)
    left = np.where(struck, rng.integers(80_000, 120_000, 4_000), 0)
    wait = rng.integers(0, 3_000, 4_000) + np.where(np.arange(4_000) % 70 < 3, 900_000, 0)
    io = np.where(np.arange(4_000) % 11 == 0, 5_000, 0)
    wall = rng.lognormal(11, 0.2, 4_000).astype(np.int64) + irq + left + wait + io
    wall += np.where(wait > 900_000, 50_000, 0)
    fault = np.where(np.arange(4_000) % 90 < 7, rng.integers(30_000, 90_000, 4_000), 0)
    wall += np.where(fault > 0, fault + 60_000, 0)
    ledger = make(wall_ns=wall, irq_ns=irq, runqueue_ns=wait, io_ns=io, fault_ns=fault)
    without = ("irq", "runqueue", "fault")
    expected, found = (
        explain(
            tailscope.open(ledger, engine=address), Target(95), None, 1, without=without
        ).to_dict()
        for address in ("duckdb", engine)
    )
    assert expected["without"]["cold_ns"] > 0
    assert expected["without"]["perhaps_ns"] > 0
    assert next(one for one in expected["causes"] if one["name"] == "irq")["cold_ns"] > 0
    same(expected, found)


def test_an_engine_compares_two_ledgers_as_duckdb_does(engine: str, make: Make) -> None:
    ledgers = two_hosts(make)
    expected, found = (
        diff(*(tailscope.open(ledger, engine=address) for ledger in ledgers), Target(99)).to_dict()
        for address in ("duckdb", engine)
    )
    assert expected["kinds"][0]["causes"]
    same(expected, found)


def test_an_engine_counts_each_value_in_the_same_bin(engine: str, make: Make) -> None:
    around = [(1 << power) + step for power in range(0, 55) for step in (-2, -1, 0, 1, 2)]
    random = np.random.default_rng(5).integers(0, 1 << 55, 2_000) >> np.arange(2_000) % 50
    walls = np.unique(np.maximum(np.concatenate([np.array(around), random]), 0))
    with connect(tailscope.open(make(wall_ns=walls), engine=engine)) as opened:
        table = opened.table()
        found = opened.run(
            table.group_by("wall_ns", bin=bin_of(table.wall_ns)).agg(n=ibis._.count())
        )
    assert len(found["bin"]) == len(walls)
    assert np.array_equal(found["bin"], bins_of(found["wall_ns"]))


@pytest.mark.parametrize("weight", [np.nan, np.inf, 0.0, -1.0])
def test_an_engine_leaves_out_the_same_rows_that_make_no_sense(
    engine: str, weight: float, make: Make
) -> None:
    weights = np.ones(100)
    weights[50] = weight
    ledger = tailscope.open(make(wall_ns=np.arange(100), weight=weights), engine=engine)
    with connect(ledger) as opened:
        overview, rows = look_over(opened, ledger)
        kept = opened.run(rows.agg(n=ibis._.count()))
    assert (overview.left_out, overview.totals[0].weight, kept["n"].tolist()) == (1, 99.0, [99])


def test_what_an_engine_can_not_read_is_one_sentence(engine: str, make: Make) -> None:
    ledger = tailscope.open(make(wall_ns=[1, 2, 3]), engine=engine)
    for file in ledger.recordings[0].files:
        Path(file).unlink()
    with pytest.raises(
        TailscopeError, match=r"^(Spark can't answer|can't read .*\.parquet): [^\n]+$"
    ):
        ledger.explain()


@pytest.mark.more
def test_spark_connect_compares_as_duckdb_does(
    spark: tuple[str, str], make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*map(str, two_hosts(make)), "--json", "--quiet"]
    assert diff_main(arguments) == 0
    expected = json.loads(capsys.readouterr().out)
    code = "import sys, tailscope.diff_cli; sys.exit(tailscope.diff_cli.main())"
    answer = elsewhere(code, *arguments, "--engine", spark[1])
    assert (answer.returncode, answer.stderr) == (0, "")
    assert expected["kinds"][0]["causes"]
    same(expected, json.loads(answer.stdout))


#: The command, with less patience than a user's.
IMPATIENT = """
import sys
from tailscope import cli
from tailscope.engines import spark
setattr(spark, sys.argv.pop(1), float(sys.argv.pop(1)))
sys.exit(cli.main())
"""


@pytest.mark.more
def test_a_cluster_that_gives_no_worker_is_one_sentence(folder: Path, two_values: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    with servers.spark_master(folder) as master:
        answer = elsewhere(IMPATIENT, "WORKER_S", "1", two_values, "--quiet", "--engine", master)
    assert answer.returncode == 3
    assert "gave no worker within" in complaint(answer)


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_what_listens_and_is_no_spark_is_one_sentence(scheme: str, two_values: Path) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"{scheme}://127.0.0.1:{silent.getsockname()[1]}"
        answer = elsewhere(IMPATIENT, "ANSWER_S", "5", two_values, "--quiet", "--engine", address)
    assert answer.returncode == 3
    assert "does not answer like Spark" in complaint(answer)


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where nobody listens, nor can while it is bound."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_an_engine_that_is_not_there_is_one_sentence(
    scheme: str, nobody: int, two_values: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    assert main([str(two_values), "--engine", f"{scheme}://127.0.0.1:{nobody}"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"can't reach the engine at 127.0.0.1:{nobody}" in said.err


@pytest.mark.parametrize("engine", ["oracle://x", "sparc", "sc://", "spark://h:port"])
def test_an_engine_that_nobody_knows_is_one_sentence(
    engine: str, two_values: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    assert main([str(two_values), "--engine", engine]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert engine in said.err


def test_without_pyspark_the_sentence_says_what_to_install(
    two_values: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    monkeypatch.setitem(__import__("sys").modules, "pyspark.errors", None)
    with pytest.raises(MachineError, match=r"pip install 'tailscope\[spark\]'"):
        tailscope.open(two_values, engine="spark://local").explain()


def test_duckdb_reads_the_named_files_only(tmp_path: Path) -> None:
    """`x[12].parquet` is a file, not a pattern that finds x1.parquet."""
    for name, wall in (("x1", 7), ("x[12]", 5)):
        row = f"{START_NS}::BIGINT start_ns, 'a' span, {wall}::BIGINT wall_ns, 1.0::DOUBLE weight"
        place = tmp_path / f"{name}.parquet"
        duckdb.sql(f"SELECT {row}").write_parquet(str(tmp_path / "new.parquet"))
        (tmp_path / "new.parquet").rename(place)
    assert tailscope.open(tmp_path / "x[12].parquet").explain().span.max_ns == 5
