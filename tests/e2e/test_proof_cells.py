"""The proof measures, judges and prints its page, and leaves the machine as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rig import installed

GROUPS = Path("/sys/fs/cgroup")


def left_behind() -> set[Path]:
    """The control groups of the lab whose makers, which they are named for, have ended."""
    made = (path for path in GROUPS.glob("**/tailscope-lab-*") if path.is_dir())
    return {path for path in made if not Path("/proc", path.name.rsplit("-", 1)[1]).exists()}


@pytest.mark.more
@pytest.mark.measures
def test_two_short_cells_are_measured_judged_and_shown(recordable: None, folder: Path) -> None:
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs two CPUs")
    before, allowed = left_behind(), os.sched_getaffinity(os.getppid())
    cells = "memcached:hog,loopbench:none"
    command = [sys.executable, "-m", "proof", "--only", cells, "--seconds", "14", "--once"]
    done = subprocess.run(
        [*command, "--output", str(folder), "--ledgers", str(folder / "ledgers")],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": str(installed.ROOT / "lab")},
    )
    assert done.returncode == 0, done.stderr
    (stored,) = folder.glob("*/proof.json")
    found = json.loads(stored.read_text())["figures"]["cells"]
    assert set(found) == {"memcached:hog", "loopbench:none"}
    hog, none = found["memcached:hog"], found["loopbench:none"]
    # On a noisy machine a verdict may go either way; that there is one may not.
    assert isinstance(hog["top"], bool) and isinstance(hog["held"], bool), found
    assert isinstance(none["top"], bool) and "held" not in none, found
    assert hog["ranking"][0]["cause"] in {"runqueue", "preempted"}, hog
    assert "| none | not measured |" in done.stdout and "## Misses" in done.stdout
    for part in ("planted", "calm"):
        about = json.loads((folder / "ledgers/memcached-hog" / part / "ledger.json").read_text())
        # How many of its requests the recorder is there for, the machine decides.
        assert about["rows"] > 0 and about["state"] == "done"
    assert left_behind() <= before
    assert os.sched_getaffinity(os.getppid()) == allowed
