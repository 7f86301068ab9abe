"""Stacks of slow and usual spans as a file for speedscope.app, which draws flame graphs.

Two profiles: what a slow span and what a usual one spends where, in ns of a mean span. The
outermost frame is the cause. Where a stack ends early, the next one says so.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tailscope.errors import LedgerError
from tailscope.escaping import escaped_in_json
from tailscope.ledger.ledger import Ledger
from tailscope.ledger.stacks import Samples, Stack, StackTables
from tailscope.present.output import write
from tailscope.statistics.explanation import Explanation
from tailscope.statistics.flame import CUT
from tailscope.statistics.slow_and_usual import LONGEST

SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def save(ledger: Ledger, explanation: Explanation, file: str) -> None:
    """Write the file."""
    found = explanation.code
    if found is None:
        raise LedgerError("the ledger has no stacks of a tail: record with --stacks")
    tables = StackTables(ledger)
    frames = Frames()
    name = explanation.span.name
    try:
        slow = tables.samples(name, found.tail_from_ns, LONGEST)
        usual = tables.samples(name, *found.usual_ns)
        profiles = [
            profile(f"slow spans of {name}", slow, found.tail_spans, frames),
            profile(f"usual spans of {name}", usual, found.usual_spans, frames),
        ]
    finally:
        tables.close()
    document = {
        "$schema": SCHEMA,
        "exporter": "tailscope",
        "name": f"{explanation.target.name} of {name}",
        "shared": {"frames": frames.listed},
        "profiles": profiles,
    }
    write(file, escaped_in_json(json.dumps(document, ensure_ascii=False)))


class Frames:
    """Frames by their number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.listed: list[dict[str, str]] = []

    def number(self, name: str, file: str = "") -> int:
        """The number of a frame."""
        key = (name, file)
        if key not in self.numbers:
            self.numbers[key] = len(self.listed)
            self.listed.append({"name": name} | ({"file": file} if file else {}))
        return self.numbers[key]

    def of(self, cause: str, stack: Stack) -> list[int]:
        """A stack, the outermost frame first."""
        outer = [self.number(cause)] + ([] if stack.whole else [self.number(CUT)])
        return outer + [self.number(one.name, one.module) for one in reversed(stack.frames)]


def profile(name: str, samples: Samples, spans: float, frames: Frames) -> dict[str, Any]:
    """The mean of some spans."""
    sums: dict[tuple[str, int], float] = {}
    times = samples.ns * samples.weight / max(spans, 1e-9)
    for cause, stack, ns in zip(samples.cause, samples.stack, times, strict=True):
        key = (cause, int(stack))
        sums[key] = sums.get(key, 0.0) + float(ns)
    # Equal stacks side by side: the picture is read from left to right.
    chains = sorted(
        (frames.of(cause, samples.stacks.get(stack, Stack((), False))), ns)
        for (cause, stack), ns in sums.items()
    )
    weights = [ns for _, ns in chains]
    return {
        "type": "sampled",
        "name": name,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": float(np.sum(weights)),
        "samples": [chain for chain, _ in chains],
        "weights": weights,
    }
