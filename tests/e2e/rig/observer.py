"""`tailscope observe` as tests run it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rig.processes import Ended

CPUS = sorted(os.sched_getaffinity(0))
#: Cycles between two steps of the lab's `paced`.
STEP = 2000

#: For modules whose every test has an observer beside a program.
NEEDS_TWO_CPUS = pytest.mark.skipif(len(CPUS) < 2, reason="an observer needs a second CPU")

#: Runs it to its end.
Observe = Callable[..., Ended]


def has_channels(pid: int) -> bool:
    """Whether a process has made its channels."""
    return "memfd:tailscope-channels" in Path(f"/proc/{pid}/maps").read_text()


def report(ended: Ended) -> dict[str, Any]:
    """What it printed, of a run that ended well."""
    return json.loads(ended.clean().out)
