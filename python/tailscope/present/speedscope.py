"""Stacks of slow and usual spans as a file for speedscope.app, which draws flame graphs.

Two profiles: what a slow span and what a usual one spends where, in ns of a mean span. The
outermost frame is the cause. Where a stack ends early, the next one says so.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from tailscope.escaping import escaped_in_json
from tailscope.ledger.ledger import Ledger
from tailscope.present.frame_tables import Numbered
from tailscope.present.mean_stacks import MeanStacks, slow_and_usual
from tailscope.present.output import write
from tailscope.statistics.explanation import Explanation

#: Functions by name and file.
Frames = Numbered[tuple[str, str]]
SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def save(ledger: Ledger, explanation: Explanation, file: str) -> None:
    """Write the file."""
    frames: Frames = Numbered()
    profiles = [profile(side, frames) for side in slow_and_usual(ledger, explanation)]
    document = {
        "$schema": SCHEMA,
        "exporter": "tailscope",
        "name": f"{explanation.target.name} of {explanation.span.name}",
        "profiles": profiles,
        "shared": {
            "frames": [{"name": name} | ({"file": file} if file else {}) for name, file in frames]
        },
    }
    write(file, escaped_in_json(json.dumps(document, ensure_ascii=False)))


def profile(side: MeanStacks, frames: Frames) -> dict[str, Any]:
    """The mean of some spans."""
    # Equal stacks side by side: the picture is read from left to right.
    chains = sorted(
        ([frames[cause, ""], *(frames[one.name, one.module] for one in stack)], ns)
        for (cause, stack), ns in side.ns.items()
    )
    weights = [ns for _, ns in chains]
    return {
        "type": "sampled",
        "name": side.title,
        "unit": "nanoseconds",
        "startValue": 0,
        "endValue": float(np.sum(weights)),
        "samples": [chain for chain, _ in chains],
        "weights": weights,
    }
