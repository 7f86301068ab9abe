"""Stacks in other programs' formats, read by those programs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Record
from perfetto.protos.perfetto.trace import perfetto_trace_pb2
from rig import ledger
from test_stacks import PLANTED_US, SPAN, Program, table


@pytest.mark.measures
def test_pprof_and_speedscope_have_the_planted_function_with_its_time(
    record: Record, program: Program, folder: Path
) -> None:
    path = program("planted.c")
    recorder = record(
        *("--span", SPAN.format(path), "--stacks=997"), *("--", path, "sleep", 3000, PLANTED_US)
    )
    recorder.wait().clean()
    files = [folder / "stacks.json", folder / "stacks.pb.gz"]
    options = ("--speedscope", str(files[0]), "--pprof", str(files[1]))
    ledger.explain(recorder.ledger, options=options)
    document = json.loads(files[0].read_text())
    frames = [one["name"] for one in document["shared"]["frames"]]
    profile = document["profiles"][0]
    weights = zip(profile["samples"], profile["weights"], strict=True)
    planted = [ns for one, ns in weights if frames.index("planted_sleep") in one]
    if not shutil.which("go"):
        pytest.skip("go is not installed, which has pprof")
    command = ["go", "tool", "pprof", "-top", "-cum", "-unit=ns", "-symbolize=none"]
    top = subprocess.run(
        [*command, "-sample_index=slow", files[1]],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    ).stdout
    rows = [line.split() for line in top.splitlines() if line.endswith(" planted_sleep")]
    assert len(rows) == 1, top
    # flat, flat%, sum%, cum, cum%, name
    cumulative = float(rows[0][3].removesuffix("ns"))
    assert cumulative == pytest.approx(sum(planted), rel=0.01, abs=1000), (top, sum(planted))
    assert any(line.split()[-1] == "sleep" for line in top.splitlines()), top


@pytest.mark.measures
def test_firefox_and_perfetto_have_the_planted_function_inside_of_slow_requests(
    record: Record, program: Program, folder: Path
) -> None:
    path = program("planted.c")
    recorder = record(
        *("--span", SPAN.format(path), "--stacks=997"), *("--", path, "sleep", 3000, PLANTED_US)
    )
    recorder.wait().clean()
    files = [folder / "tail.json", folder / "tail.perfetto-trace"]
    options = ("--firefox", str(files[0]), "--perfetto", str(files[1]))
    explanation = ledger.explain(recorder.ledger, options=options)
    number = explanation["code"]["sampling"]["samples"]
    ((count, ns),) = table(recorder.ledger, "samples", "SELECT count(*), sum(ns) FROM samples")
    assert count == number > 0

    profile = json.loads(files[0].read_text())
    (thread,) = profile["threads"]
    assert thread["samples"]["length"] == number
    assert sum(thread["samples"]["weight"]) == pytest.approx(ns / 1e6)
    slow = list(zip(thread["markers"]["startTime"], thread["markers"]["endTime"], strict=True))
    assert len(slow) == explanation["code"]["tail_spans"]
    trace = perfetto_trace_pb2.Trace.FromString(files[1].read_bytes())
    samples = [one for one in trace.packet if one.HasField("stack_sample")]
    assert len(samples) == number
    assert sum(one.stack_sample.primary_weight for one in samples) == ns

    # Perfetto says where planted_sleep was, and the Firefox Profiler's markers when it was slow.
    data = trace.packet[1].interned_data
    names = {one.iid: one.str for one in data.function_names}
    planted = {one.iid for one in data.frames if names[one.function_name_id] == b"planted_sleep"}
    stacks = {one.iid for one in data.callstacks if planted & {*one.frame_ids}}
    start = profile["meta"]["startTime"]
    waits = [
        one.timestamp / 1e6 - start for one in samples if one.stack_sample.callstack_iid in stacks
    ]
    inside = [at for at in waits if any(a - 0.01 <= at <= b for a, b in slow)]
    # A busy machine makes some other requests the slowest.
    assert len(inside) > 0.5 * len(slow) > 0, (len(inside), len(waits), len(slow))
