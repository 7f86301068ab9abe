"""Other engines give the answers that DuckDB gives; one that can't be reached is one sentence."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import duckdb
import ibis
import numpy as np
import pytest
import tailscope
from conftest import Make
from explain_synthetic import START_NS, World
from tailscope.cli import main
from tailscope.diff import diff
from tailscope.engine import connect
from tailscope.errors import MachineError, TailscopeError
from tailscope.explanation import explain
from tailscope.grid import bin_of, bins_of
from tailscope.target import Target

LOCAL = "spark://local"


@pytest.fixture(scope="module")
def spark() -> Iterator[str]:
    """One Spark on this machine for all tests: a new one takes seconds each time."""
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none")
    from tailscope.engines.spark import session

    made, _ = session(LOCAL)
    yield LOCAL
    made.stop()


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


def test_spark_explains_as_duckdb_does(spark: str, make: Make) -> None:
    ledgers = two_hosts(make)
    expected = tailscope.open(*ledgers).explain("p99").to_dict()
    found = tailscope.open(*ledgers, engine=spark).explain("p99").to_dict()
    assert expected["causes"][0]["name"] == "lock"
    same(expected, found)


def test_spark_draws_the_same_rows_and_cuts_the_same_segments(
    spark: str, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailscope.sample.QUOTA", (300, 400, 20))
    (first, _) = two_hosts(make)
    expected, found = (
        explain(
            tailscope.open(first, engine=engine), Target(99), None, 1, segment_ns=10**9
        ).to_dict()
        for engine in ("duckdb", spark)
    )
    assert expected["shapley"]["is_sample"]
    assert len(expected["segments"]["segments"]) == 4
    same(expected, found)


def test_spark_compares_two_ledgers_as_duckdb_does(spark: str, make: Make) -> None:
    ledgers = two_hosts(make)
    expected, found = (
        diff(*(tailscope.open(ledger, engine=engine) for ledger in ledgers), Target(99)).to_dict()
        for engine in ("duckdb", spark)
    )
    assert expected["kinds"][0]["causes"]
    same(expected, found)


def test_spark_counts_each_value_in_the_same_bin(spark: str, make: Make) -> None:
    around = [(1 << power) + step for power in range(0, 55) for step in (-2, -1, 0, 1, 2)]
    random = np.random.default_rng(5).integers(0, 1 << 55, 2_000) >> np.arange(2_000) % 50
    walls = np.unique(np.maximum(np.concatenate([np.array(around), random]), 0))
    with connect(tailscope.open(make(wall_ns=walls), engine=spark)) as engine:
        table = engine.table()
        found = engine.run(
            table.group_by("wall_ns", bin=bin_of(table.wall_ns)).agg(n=ibis._.count())
        )
    assert len(found["bin"]) == len(walls)
    assert np.array_equal(found["bin"], bins_of(found["wall_ns"]))


def test_what_spark_can_not_read_is_one_sentence(spark: str, make: Make) -> None:
    ledger = tailscope.open(make(wall_ns=[1, 2, 3]), engine=spark)
    for file in ledger.recordings[0].files:
        Path(file).unlink()
    with pytest.raises(TailscopeError, match=r"^Spark can't answer: [^\n]+$"):
        ledger.explain()


@pytest.fixture
def nobody() -> int:
    """A port where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_an_engine_that_is_not_there_is_one_sentence(
    scheme: str, nobody: int, two_values: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark", reason="PySpark is not installed (requirements-extras.lock)")
    assert main([str(two_values), "--engine", f"{scheme}://127.0.0.1:{nobody}"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"the engine at 127.0.0.1:{nobody} can't be reached" in said.err


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
        tailscope.open(two_values, engine=LOCAL).explain()


def test_duckdb_reads_the_named_files_only(tmp_path: Path) -> None:
    """`x[12].parquet` is a file, not a pattern that finds x1.parquet."""
    for name, wall in (("x1", 7), ("x[12]", 5)):
        row = f"{START_NS}::BIGINT start_ns, 'a' span, {wall}::BIGINT wall_ns, 1.0::DOUBLE weight"
        place = tmp_path / f"{name}.parquet"
        duckdb.sql(f"SELECT {row}").write_parquet(str(tmp_path / "new.parquet"))
        (tmp_path / "new.parquet").rename(place)
    assert tailscope.open(tmp_path / "x[12].parquet").explain().span.max_ns == 5
