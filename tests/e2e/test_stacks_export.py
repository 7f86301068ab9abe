"""Stacks in other programs' formats, read by those programs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import Record
from rig import ledger
from test_stacks import PLANTED_US, SPAN, Program


@pytest.mark.measures
def test_pprof_and_speedscope_have_the_planted_function_with_its_time(
    record: Record, program: Program, folder: Path
) -> None:
    path = program("planted.c")
    recorder = record(
        *("--span", SPAN.format(path), "--stacks"), *("--", path, "sleep", 3000, PLANTED_US)
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
