"""A ledger's requests beside the truth that the server wrote down."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

#: A ledger's row: name, wall, and the time of the waits for a CPU or a thread, of downstream and of
#: unknown, in ns.
Row = tuple[str, int, int, int, int]

WAITS = ("queue", "runqueue", "preempted", "throttled", "lock", "io", "network", "sleep")
QUERY = (
    f"SELECT span, wall_ns, {' + '.join(f'coalesce({wait}_ns, 0)' for wait in WAITS)}, "
    "downstream_ns, unknown_ns FROM spans WHERE span LIKE 'GET /w/%'"
)
PARTS = ("running", "queue", "downstream", "unknown")


@dataclass(frozen=True)
class Compared:
    """One request: what the ledger says less the truth, in ns."""

    name: str
    wall: int
    wall_off: int
    off: dict[str, int]

    @property
    def wall_right(self) -> bool:
        """Within 20 us or 2 %."""
        return abs(self.wall_off) <= max(20_000, 0.02 * self.wall)

    @property
    def parts_right(self) -> bool:
        """Each part within 5 % of the wall time."""
        return all(abs(off) <= 0.05 * self.wall for off in self.off.values())


def _length(intervals: list[list[int]]) -> int:
    return sum(to - since for since, to in intervals)


def true_parts(truth: dict[str, Any], wall: int) -> dict[str, int]:
    """How long threads worked for it, and what else it waited for, of so long."""
    parts = {
        "running": truth["working"],
        "downstream": _length(truth["downstream"]),
        "unknown": _length(truth.get("asleep", [])),
    }
    parts["queue"] = wall - sum(parts.values())
    return parts


def compare(rows: list[Row], printed: str, began: dict[str, tuple[int, int]]) -> list[Compared]:
    """Every request that both sides know. Between the clocks before and after a send the truth is
    any moment: a thread may lose its CPU there. A server may name the CPU time of its own send; a
    doubt, as some of its work may be that of a thread on its way to sleep; and its runtime's work,
    of which some may be for the request."""
    truths = {truth["id"]: truth for truth in map(json.loads, printed.splitlines())}
    found = []
    for span, wall, queue, downstream, unknown in rows:
        name = span.rsplit("/", 1)[1]
        if name not in truths or name not in began:
            continue
        truth, (before, after) = truths[name], began[name]
        true_wall = min(max(wall, truth["sending"] - after), truth["sent"] - before)
        true = true_parts(truth, true_wall)
        said = {"queue": queue, "downstream": downstream, "unknown": unknown}
        said["running"] = wall - sum(said.values())
        # The answer's send is work too. It ends a wall time after the request's data came.
        sent_for = max(0, true_wall - (truth["sending"] - before))
        least = min(sent_for, truth.get("send", sent_for)) - truth.get("doubt", 0)
        most = max(least, true_wall - (truth["sending"] - after)) + truth.get("runtime", 0)
        sends = min(max(said["running"] - true["running"], least), most)
        true["running"] += sends
        true["queue"] -= sends
        off = {part: said[part] - true[part] for part in PARTS}
        found.append(Compared(name, true_wall, wall - true_wall, off))
    return found


def summary(compared: list[Compared]) -> dict[str, float]:
    """Shares of requests that are right."""
    count = max(len(compared), 1)
    shares = {
        "requests": len(compared),
        "wall": sum(c.wall_right for c in compared) / count,
        "parts": sum(c.parts_right for c in compared) / count,
    }
    for part in PARTS:
        right = sum(abs(c.off[part]) <= 0.05 * c.wall for c in compared)
        shares[part] = right / count
    return shares


def worst(compared: list[Compared], most: int = 8) -> str:
    """The requests that are furthest off, for a message."""
    wrong = sorted(
        (c for c in compared if not c.parts_right or not c.wall_right),
        key=lambda c: -max(map(abs, c.off.values())) / c.wall,
    )
    lines = [
        f"{c.name}: {c.wall / 1e3:.0f} us, wall {c.wall_off / 1e3:+.0f}, "
        + ", ".join(f"{part} {off / 1e3:+.0f}" for part, off in c.off.items())
        for c in wrong[:most]
    ]
    return "\n".join(lines)
