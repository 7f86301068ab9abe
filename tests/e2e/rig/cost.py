"""`tailscope cost`, run to its end."""

from __future__ import annotations

import json
import subprocess

from rig import installed


def cost(*words: object, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    """What it says and how it ends."""
    command = [str(installed.tailscope()), "cost", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def told(done: subprocess.CompletedProcess[str]) -> dict:
    """The JSON that it printed."""
    assert done.returncode == 0, done
    return json.loads(done.stdout)
