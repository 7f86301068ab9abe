"""`tailscope observe` as tests run it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rig.processes import Ended

CPUS = sorted(os.sched_getaffinity(0))
#: Cycles between two steps of the lab's `paced`.
STEP = 2000

#: Runs it to its end.
Observe = Callable[..., Ended]


def has_channels(pid: int) -> bool:
    """Whether a process has made its channels."""
    return "memfd:tailscope-channels" in Path(f"/proc/{pid}/maps").read_text()


def report(ended: Ended) -> dict[str, Any]:
    """What it printed, of a run that ended well."""
    return json.loads(ended.clean().out)
