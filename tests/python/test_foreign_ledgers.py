"""Ledgers that are not as the recorder leaves them: one clear sentence each, and the right code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from command import Command, flat, runner, sentence
from conftest import Make, edit, rewrite
from explain_synthetic import CHECKSUM, ROOM, START_NS, World, seal
from tailscope import diff_cli
from tailscope.cli import main

LARGEST = np.iinfo(np.int64).max


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


@pytest.fixture
def run_diff(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(diff_cli.main, capsys)


def said(found: tuple[int, str, str]) -> str:
    return sentence(found, "tailscope explain")


def foreign(path: Path, select: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    room = f"KV_METADATA {{'{CHECKSUM}': '{ROOM}'}}"
    duckdb.execute(f"COPY ({select}) TO '{path}' (FORMAT parquet, {room})")
    return seal(path)


def rows(
    wall: str = "1000 + i",
    weight: str = "1.0::DOUBLE",
    start: str = str(START_NS),
    more: str = "",
) -> str:
    """A query for 1,000 rows; `i` counts them."""
    return (
        f"SELECT ({start})::BIGINT + i * 1000000 AS start_ns, 'get' AS span, "
        f"({wall})::BIGINT AS wall_ns, {weight} AS weight{more} FROM range(1000) AS r(i)"
    )


def test_recordings_of_other_versions_kinds_and_clocks_are_told(make: Make, run: Command) -> None:
    one = make("one", wall_ns=[1_000] * 500)
    about = {"tailscope": "0.3.0", "spans": ["sdk"], "clock": {"source": "cntvct", "hz": 10**9}}
    two = make("two", wall_ns=[1_000] * 500, about=about)
    code, out, _ = run(one, two)
    text = flat(out)
    assert code == 0
    assert f"different versions of tailscope (0.1.0 in {one}, 0.3.0 in {two})" in text
    assert "have different kinds of spans" in text
    assert "were timed by different clocks" in text
    assert "different" not in run(one)[1]


@pytest.mark.parametrize("schema", [0, -1, "two", None, [1]])
def test_a_schema_that_is_no_version_is_refused(make: Make, run: Command, schema: object) -> None:
    ledger = make(wall_ns=[1], about={"schema": schema})
    assert "which does not exist: tailscope did not write this ledger" in said(run(ledger))


def test_a_newer_schema_beside_a_known_one(make: Make, run: Command, run_diff: Command) -> None:
    old, new = make("old", wall_ns=[1] * 9), make("new", wall_ns=[1] * 9, about={"schema": 7})
    assert "has schema 7 and this tailscope reads up to 1" in said(run(old, new))
    found = run_diff(old, new)
    assert "install a newer tailscope" in sentence(found, "tailscope diff")


def test_rows_of_another_clock_are_told(make: Make, run: Command) -> None:
    since_boot = 40 * 10**9 + np.arange(500) * 1_000_000
    code, out, _ = run(make(wall_ns=[1_000] * 500, start_ns=since_boot))
    assert code == 0
    assert "another clock than Unix time" in flat(out)


@pytest.mark.parametrize(
    "wrong",
    [
        {"wall": f"CASE WHEN i = 7 THEN {LARGEST} ELSE 1000 END"},
        {"wall": "CASE WHEN i = 7 THEN -1 ELSE 1000 END"},
        {"wall": "CASE WHEN i <> 7 THEN 1000 END"},
        {"weight": "CASE WHEN i = 7 THEN 'nan'::DOUBLE ELSE 1 END"},
        {"weight": "CASE WHEN i = 7 THEN '-inf'::DOUBLE ELSE 1 END"},
        {"weight": "CASE WHEN i = 7 THEN 1e300 ELSE 1 END"},
        {"weight": "CASE WHEN i = 7 THEN 0 ELSE 1 END::DOUBLE"},
        {"start": f"CASE WHEN i = 7 THEN -{LARGEST} ELSE {START_NS} END"},
        {"start": f"CASE WHEN i = 7 THEN {LARGEST} - 7000000 ELSE {START_NS} END"},
        {"more": f", CASE WHEN i = 7 THEN {LARGEST} ELSE 5 END AS lock_ns"},
        {"more": ", CASE WHEN i = 7 THEN -5 ELSE 5 END::BIGINT AS lock_ns"},
    ],
    ids=lambda wrong: " ".join(wrong.values())[:40],
)
def test_a_row_that_makes_no_sense_is_left_out_and_told(
    tmp_path: Path, run: Command, run_diff: Command, wrong: dict[str, str]
) -> None:
    path = foreign(tmp_path / "a.parquet", rows(**wrong))
    code, out, _ = run(path)
    assert code == 0
    assert "1 of 1,000 rows have impossible values" in flat(out)
    assert "999 spans" in out
    code, out, _ = run_diff(path, path)
    assert code == 0
    assert "1 of 1,000 rows of BASE have impossible values" in flat(out)


def test_causes_that_overflow_together_are_no_measurement(tmp_path: Path, run: Command) -> None:
    more = "".join(f", {LARGEST // 2} AS {cause}_ns" for cause in ("lock", "io", "irq"))
    path = foreign(tmp_path / "a.parquet", rows(more=more))
    assert "none of the ledger's 1,000 rows has valid values" in said(run(path))
    nine_years = 1 << 58
    more = "".join(f", {nine_years} AS {cause}_ns" for cause in ("lock", "io", "irq", "sleep"))
    path = foreign(tmp_path / "b.parquet", rows(wall=str(nine_years), more=more))
    code, out, _ = run(path, "--json")
    assert code == 0
    running = next(one for one in json.loads(out)["causes"] if one["name"] == "running")
    assert running["tail_mean_ns"] == 0


@pytest.mark.parametrize("kind", ["DOUBLE", "UBIGINT", "HUGEINT", "VARCHAR"])
def test_columns_of_another_type_are_named(tmp_path: Path, run: Command, kind: str) -> None:
    path = foreign(tmp_path / "a.parquet", rows(more=f", '5'::{kind} AS lock_ns"))
    assert "its column lock_ns is" in said(run(path))
    assert "should be BIGINT" in said(run(path))
    path = foreign(tmp_path / "b.parquet", rows(more=f", '5'::{kind} AS instructions"))
    assert "its column instructions is" in said(run(path))


def test_half_of_the_files_are_gone(make: Make, run: Command, run_diff: Command) -> None:
    for number in range(4):
        ledger = make(wall_ns=[1_000] * 250, number=number)
    edit(ledger, files=4, rows=1_000)
    files = sorted(ledger.rglob("*.parquet"))
    whole = make("whole", wall_ns=[1_000] * 250)
    for file in files[::2]:
        file.unlink()
    code, out, err = run(ledger)
    assert code == 0
    notice = f"2 of 4 files (50 %, with 50 % of the rows) are left out; missing: 2 of {ledger}"
    assert f"INCOMPLETE: {notice}" in flat(err)
    assert flat(out).startswith(f"INCOMPLETE: {notice}")
    assert "500 spans" in out
    code, out, err = run_diff(whole, ledger)
    assert code == 0
    assert flat(out).startswith(f"NEW: INCOMPLETE: {notice}")
    for file in files[1::2]:
        file.unlink()
    assert "has none of the 4 files that it had" in said(run(ledger))
    (ledger / "ledger.json").unlink()
    assert "no ledger.json and no Parquet file" in said(run(ledger))


def test_a_file_lacks_columns_that_others_have(make: Make, run: Command) -> None:
    slow = np.arange(1_000) % 20 == 3
    ledger = make(wall_ns=np.where(slow, 900_000, 100_000), lock_ns=np.where(slow, 800_000, 0))
    start = str(START_NS + 10**9)
    more = ", 0::BIGINT AS irq_ns, 0::BIGINT AS irq_n"
    foreign(
        next(ledger.rglob("*.parquet")).with_name("000001.parquet"),
        rows(start=start, wall="100000", more=more).replace("'get'", "'recv..send'"),
    )
    code, out, _ = run(ledger)
    assert code == 0
    assert "lock was measured in 50% of the rows only" in flat(out)


@pytest.mark.parametrize("options", [(), ("-p", "p99.99"), ("--segment", "100ms")])
def test_tails_that_are_none(make: Make, run: Command, options: tuple[str, ...]) -> None:
    flat_tail = make("flat", wall_ns=[7_000] * 2_000)
    code, out, _ = run(flat_tail, *options)
    assert code == 0
    assert "there is no tail to explain" in flat(out)
    zero = make("zero", wall_ns=[0] * 2_000)
    assert run(zero, *options)[0] == 0


def test_one_span_in_segments(make: Make, run: Command) -> None:
    assert "can't compare segments" in said(run(make(wall_ns=[5]), "--segment", "1s"))


def test_another_kind_of_span_in_each_ledger(make: Make, run: Command) -> None:
    world = World(5, seconds=1)
    one = make("one", wall_ns=[1] * 5, world=replace(world, span="get"))
    two = make("two", wall_ns=[2] * 9, world=replace(world, span="set"))
    code, out, _ = run(one, two)
    assert code == 0
    assert "set:" in out
    assert "other spans (--span NAME explains them)" in out
    assert "get" in out


def test_nulls_in_each_row_are_no_measurement(make: Make, run: Command) -> None:
    ledger = make(wall_ns=[1_000] * 200, lock_ns=[5] * 200)
    rewrite(ledger, "SELECT * EXCLUDE row REPLACE (NULL::BIGINT AS lock_ns) FROM {rows}")
    code, out, _ = run(ledger)
    assert code == 0
    assert "not measured: lock" in flat(out)
