"""`tailscope observe` and the samples that it writes to disk."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from rig.observer import NEEDS_TWO_CPUS, STEP, Observe, report

pytestmark = NEEDS_TWO_CPUS


def test_raw_samples_say_the_same_as_the_report(
    observe: Observe, paced: Callable, folder: Path
) -> None:
    pid = paced("--cycles", STEP, "--phases", 2).pid
    names = [f"channel:{pid}:rounds", f"channel:{pid}:phase"]
    told = report(
        observe(
            *("--signal", names[0], "--tag", names[1], "--period", 5 * STEP),
            *("--duration", "1s", "--json", "--output", folder / "raw"),
            *("--html", folder / "seen.html"),
        )
    )
    page = (folder / "seen.html").read_text()
    assert f'aria-label="Distribution of the rate of {names[0]}"' in page
    # A bar for each of both phases, drawn for a desk and for a phone.
    assert page.count('<rect class="f-ink"') == 2 * 2
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    raw = told["raw"]
    assert (raw["samples"], raw["lost"], raw["error"]) == (told["samples"], 0, None)
    with duckdb.connect() as engine:
        rows = engine.read_parquet(str(folder / "raw" / "*.parquet"))
        assert rows.columns == ["cycles", "took", "mark", *names]
        rows.order("cycles").create_view("samples")
        rounds = f'"{names[0]}"'
        # Pairs as docs/reference/observe.md has them, counted by another program.
        kept, grown = engine.execute(
            f"""
            SELECT count(*), sum(grown) FROM (
                SELECT mark, cycles - lag(cycles) OVER w AS first,
                       cycles + took - lag(cycles + took) OVER w AS second,
                       {rounds} - lag({rounds}) OVER w AS grown
                FROM samples WINDOW w AS (ORDER BY cycles)
            ) WHERE mark = 0 AND first > 0
                AND abs(second - first) <= greatest(first * 10486 // 1048576, {told["clock_step"]})
            """
        ).fetchone()
    assert kept == told["kept"]
    assert sum(cell[1] for cell in told["rates"][0]["cells"]) == kept
    per_second = told["rates"][0]["per_second"]
    assert grown / told["rates"][0]["per_cycle"] > 0 and per_second > 0
    again = observe("--signal", names[0], "--output", folder / "raw")
    assert again.code == 2 and "exists" in again.err


def test_a_full_disk_ends_the_raw_samples_and_not_the_report(
    observe: Observe, paced: Callable, folder: Path
) -> None:
    small = folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("a small disk asks for the right to mount")
    try:
        pid = paced("--cycles", STEP).pid
        ended = observe(
            *("--signal", f"channel:{pid}:rounds", "--period", STEP, "--duration", "2s"),
            *("--json", "--output", small / "raw"),
        )
    finally:
        subprocess.run(["umount", str(small)], check=True, timeout=30)
    told = json.loads(ended.out)
    assert ended.code == 3 and "raw samples are missing" in ended.err
    assert told["raw"]["lost"] == told["samples"] - told["raw"]["samples"] > 0
    assert "no space left" in told["raw"]["error"]
    assert told["rates"][0]["per_cycle"] > 0
