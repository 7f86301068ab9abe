"""`tailscope chase`: its figures are whole and consistent, whatever this machine is like."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rig import installed
from rig.observer import CPUS, NEEDS_TWO_CPUS
from rig.processes import Started
from rig.waiting import until

pytestmark = NEEDS_TWO_CPUS
#: Other programs may use the CPUs: these tests need figures, not right ones.
BUSY = ("--tolerance", "100%")
SYSFS = Path(f"/sys/devices/system/cpu/cpu{CPUS[0]}/cache")


def chase(folder: Path, *arguments: object) -> str:
    with Started([installed.tailscope(), "chase", *arguments], cwd=folder) as started:
        return started.wait().clean().out


def within(interval: dict[str, float]) -> bool:
    return 0 < interval["low"] <= interval["value"] <= interval["high"]


def test_each_mode_has_a_speed_and_each_ratio_an_interval(folder: Path) -> None:
    options = ("-d", "600ms", "--segment", "1ms", "-w", "16KiB,64KiB", "-u", "0,100%", *BUSY)
    modes = ("--modes", "sync,yield,delegate", "--no-latencies", "--json", "-q")
    found: dict[str, Any] = json.loads(chase(folder, *options, *modes))
    assert found["kind"] == "chase" and found["cpus"][0] == CPUS[0]
    assert found["pair"]["verdict"] in ("two-cores", "one-core", "unknown")
    assert found["pair"]["beside"] is None or within(found["pair"]["beside"])
    assert within(found["costs"]["switch_ns"]) and within(found["costs"]["migration_ns"])
    assert found["latencies"] == found["knees"] == []
    points = found["points"]
    assert len(points) == found["planned"] == 4
    sizes = [(point["working_set"], point["updates"]) for point in points]
    assert sizes == [(16384, 0), (16384, 1), (65536, 0), (65536, 1)]
    for point in points:
        modes_of = [speed["mode"] for speed in point["speeds"]]
        assert modes_of == ["sync", "yield", "delegate"]
        assert all(speed["per_second"] > 0 for speed in point["speeds"])
        assert point["speeds"][0]["ratio"] is None
        assert point["rounds"] > 0
        assert point["rounds"] < 8 or all(within(s["ratio"]) for s in point["speeds"][1:])


def test_the_text_says_first_what_the_two_cpus_are(folder: Path) -> None:
    out = chase(folder, "-q", "-d", "100ms", "-w", "16KiB", "-u", "50%", "--no-latencies", *BUSY)
    flat = " ".join(out.split())
    assert re.search(r"CPUs \d+ and \d+: (two cores|threads of one core) by the topology\. ", flat)
    assert flat.startswith(("CPUs ", "Other programs had these CPUs ", "Whether other programs"))
    assert "16.0 KiB" in out and "over sync" in out
    # Accesses are whole numbers, so the share of writes is as near as they allow.
    assert re.search(r"\b(49\.9|50\.[01]) %", out), out


@pytest.mark.measures
def test_the_latency_rises_where_sysfs_says_that_l1d_ends(folder: Path) -> None:
    sizes = [
        cache.joinpath("size").read_text().strip()
        for cache in SYSFS.glob("index*")
        if cache.joinpath("type").read_text().strip() == "Data"
    ]
    if not sizes:
        pytest.skip("sysfs does not describe the caches")
    (size,) = sizes
    known = int(size.removesuffix("K")) * 1024
    found = json.loads(chase(folder, "--calibrate", "--json", "-q"))
    assert found["caches"]["l1d"] == known
    assert found["points"] == []
    nearest = min(found["knees"], key=lambda knee: abs(knee - known))
    assert nearest == pytest.approx(known, rel=0.25)


def test_an_interrupted_run_keeps_what_it_has_and_says_how_much(folder: Path) -> None:
    sizes = ",".join(f"{kib}KiB" for kib in range(16, 96))
    options = ("-w", sizes, "-u", "0", "-d", "200ms", "--no-latencies", "-q", *BUSY)
    with Started([installed.tailscope(), "chase", *options], cwd=folder) as started:
        until(lambda: started.hears(signal.SIGINT), "it handles signals")
        # The calibration takes less than 3 s of CPU time, and each of the 80 sizes 0.4 s.
        started.works(5e9)
        ended = started.stop(signal.SIGINT).clean()
    found = re.search(r"Interrupted: (\d+) of 80 combinations", ended.out)
    assert found, ended.out
    assert 0 < int(found[1]) == ended.out.count(" L1d ") < 80


def test_an_interrupt_before_the_first_figure_is_an_error(folder: Path) -> None:
    with Started([installed.tailscope(), "chase", "-q"], cwd=folder) as started:
        until(lambda: started.hears(signal.SIGINT), "it handles signals")
        ended = started.stop(signal.SIGINT)
    assert ended.code == 3 and "interrupted" in ended.err


def test_one_cpu_is_not_enough_and_the_message_says_so(folder: Path) -> None:
    command = ["taskset", "-c", CPUS[0], installed.tailscope(), "chase"]
    with Started(command, cwd=folder) as started:
        ended = started.wait()
    assert ended.code == 3 and "needs two CPUs" in ended.err


@pytest.mark.more
def test_a_hundred_million_migrations_under_lto_lose_nothing() -> None:
    command = ["cargo", "test", "--release", "--locked", "-p", "tailscope-fibre"]
    environment = os.environ | {"FIBRE_MIGRATIONS": "100000000"}
    done = subprocess.run(
        command, cwd=installed.ROOT, env=environment, capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "migrations_lose_nothing_and_double_nothing ... ok" in done.stdout
