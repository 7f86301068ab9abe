"""Samples over time from the tables of a ledger to the files, through the command."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from command import Command, runner
from conftest import CHECKSUM, ROOM, Make, seal
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as definitions
from tailscope.cli import main
from tailscope.present import thread_samples

#: Of each span a sample on the CPU; of the slow ones also a wait for a lock.
SAMPLES = """
    SELECT start_ns + 10 AS time_ns, row, span, start_ns, wall_ns, weight, pid, tid,
           'running' AS cause, 100000::BIGINT AS ns, 0::BIGINT AS stack FROM {rows}
    UNION ALL
    SELECT start_ns + 20, row, span, start_ns, wall_ns, weight, pid, tid + 1,
           'lock', 900000, 1 FROM {rows} WHERE lock_ns > 0
"""
STACKS = """
    SELECT stack::BIGINT AS stack, depth::BIGINT AS depth, function, '/bin/kv' AS module,
           1::BIGINT AS address, 0 AS inlined, 1 AS whole
    FROM (VALUES (0, 0, 'main'), (1, 0, 'put'), (1, 1, 'main')) AS t(stack, depth, function)
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return runner(main, capsys)


def table(ledger: Path, name: str, select: str) -> None:
    """Write a sealed table of stacks."""
    file = ledger / "_stacks" / f"{name}-00000.pq"
    file.parent.mkdir(exist_ok=True)
    rows = f"(SELECT *, row_number() OVER (ORDER BY start_ns) AS row FROM '{ledger}/**/*.parquet')"
    meta = f"KV_METADATA {{'{CHECKSUM}': '{ROOM}'}}"
    text = select.format(rows=rows)
    duckdb.execute(f"COPY ({text}) TO '{file}' (FORMAT parquet, {meta})")
    seal(file)


@pytest.fixture
def stacked(two_values: Path) -> Path:
    """`two_values` with stacks."""
    table(two_values, "samples", SAMPLES)
    table(two_values, "stacks", STACKS)
    return two_values


def files(folder: Path) -> tuple[Path, Path, tuple[str, ...]]:
    """Where the two programs' files go, and the options that say so."""
    firefox, perfetto = folder / "tail.json", folder / "tail.perfetto-trace"
    return firefox, perfetto, ("--firefox", str(firefox), "--perfetto", str(perfetto))


def test_both_files_have_all_samples_with_their_time_and_the_slow_requests(
    stacked: Path, tmp_path: Path, run: Command
) -> None:
    firefox, perfetto, options = files(tmp_path)
    code, out, err = run(stacked, "--json", *options)
    assert code == 0
    assert err.splitlines() == [f"tailscope explain: wrote {one}" for one in (firefox, perfetto)]
    explained = json.loads(out)["code"]
    assert explained["sampling"]["samples"] == 1020

    threads = json.loads(firefox.read_text())["threads"]
    weights = [sum(thread["samples"]["weight"]) for thread in threads]
    assert [(thread["name"], thread["samples"]["length"]) for thread in threads] == [
        ("thread 4711", 1000),
        ("thread 4712", 20),
    ]
    assert weights == pytest.approx([100.0, 18.0])
    assert [thread["markers"]["length"] for thread in threads] == [20, 0]

    trace = definitions.Trace.FromString(perfetto.read_bytes())
    samples = [one.stack_sample for one in trace.packet if one.HasField("stack_sample")]
    assert len(samples) == 1020
    assert sum(one.primary_weight for one in samples) == 118_000_000
    begun = [one for one in trace.packet if one.track_event.type == 1]
    assert len(begun) == 20 == explained["tail_spans"]


def test_of_too_many_samples_the_slowest_spans_are_shown_and_the_rest_is_told(
    stacked: Path, tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_samples, "MOST_SAMPLES", 40)
    monkeypatch.setattr(thread_samples, "MOST_REQUESTS", 19)
    firefox, _, options = files(tmp_path)
    err = run(stacked, *options[:2])[2]
    assert "only 40 of 1,020 samples are in it: those of the slowest spans" in err
    assert "only the 19 slowest requests are in it" in err
    profile = json.loads(firefox.read_text())
    assert [thread["samples"]["length"] for thread in profile["threads"]] == [20, 20]
    assert sum(thread["markers"]["length"] for thread in profile["threads"]) == 19
    assert len(profile["meta"]["extra"][0]["entries"]) == 3


@pytest.mark.parametrize(
    "wrong", ["-1 AS ns", "-5 AS time_ns", "-1 AS pid", "1::BIGINT << 40 AS tid", "NULL AS cause"]
)
def test_numbers_that_no_recorder_writes_are_left_out(
    stacked: Path, tmp_path: Path, run: Command, wrong: str
) -> None:
    table(stacked, "samples", f"SELECT * REPLACE ({wrong}) FROM ({SAMPLES}) LIMIT 20")
    firefox, perfetto, options = files(tmp_path)
    assert run(stacked, *options)[0] == 0
    threads = json.loads(firefox.read_text())["threads"]
    assert [thread["samples"]["length"] for thread in threads] == [0]
    trace = definitions.Trace.FromString(perfetto.read_bytes())
    assert not any(one.HasField("stack_sample") for one in trace.packet)


def test_a_ledger_without_stacks_says_how_to_get_them(
    make: Make, tmp_path: Path, run: Command
) -> None:
    ledger = make(wall_ns=range(1, 2000))
    for option in ("--firefox", "--perfetto"):
        found = run(ledger, "-q", option, tmp_path / "file")
        assert found[0] == 2
        assert "record with --stacks" in sentence((2, "", found[2]))


def sentence(found: tuple[int, str, str]) -> str:
    """The last line on stderr."""
    return found[2].strip().splitlines()[-1]
