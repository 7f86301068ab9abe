"""`tailscope cost`, run to its end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from rig import installed

#: What a hit of a kind is made to cost (ns) where a short calibration has no figure for it.
MADE = {"ns": {"value": 300.0, "low": 200.0, "high": 400.0}, "hits": 1000, "earlier": []}


def cost(*words: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """What it says and how it ends."""
    command = [str(installed.tailscope()), "cost", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def told(done: subprocess.CompletedProcess[str]) -> dict:
    """The JSON that it printed."""
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def calibrate_briefly(path: Path) -> set[str]:
    """Calibrates this machine into a file, and makes figures up for kinds that a busy machine left
    out. Returns the kinds that are absent for other reasons. Skips the test where it can't."""
    if os.geteuid() != 0:
        pytest.skip("only root may load the programs that are timed")
    done = cost("calibrate", "--file", path, "-d", "1s", "--quiet", "--json")
    if done.returncode == 3:
        pytest.skip(f"can't calibrate here: {done.stderr.splitlines()[0]}")
    found = told(done)
    short = [kind for kind, why in found["absent"] if "turns" in why]
    found["kinds"] += [{**found["kinds"][0], **MADE, "kind": kind} for kind in short]
    found["absent"] = [one for one in found["absent"] if one[0] not in short]
    path.write_text(json.dumps(found))
    return {kind for kind, _ in found["absent"]}
