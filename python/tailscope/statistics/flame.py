"""Who called whom, and how long: the tree of calls of some spans, beside that of usual ones.

Of each call its mean time in a slow span and in a usual one, that of the calls below it included.
Times are ns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from tailscope.ledger.stacks import Samples, Stack

#: Calls below this part of all slow time, and deeper ones, are left out: nobody could see them.
VISIBLE, DEEPEST = 0.005, 48
#: The outermost call of stacks that end early.
CUT = "(callers not known)"

Path = tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A function, called along one path."""

    name: str
    tail_ns: float
    usual_ns: float
    calls: tuple[Call, ...] = ()


def tree(cause: str, tail: Mapping[Path, float], usual: Mapping[Path, float]) -> Call:
    """The calls under a cause, from the times of each path (the outermost function first)."""
    times = {path: (ns, 0.0) for path, ns in tail.items()}
    for path, ns in usual.items():
        times[path] = (times.get(path, (0.0, 0.0))[0], ns)
    least = VISIBLE * sum(tail.values())
    return grow(cause, [(path, *both) for path, both in times.items()], 0, least)


def grow(name: str, paths: Iterable[tuple[Path, float, float]], depth: int, least: float) -> Call:
    """A call and what it called, the longest in slow spans first."""
    below: dict[str, list[tuple[Path, float, float]]] = {}
    tail_ns = usual_ns = 0.0
    for path, tail, usual in paths:
        tail_ns, usual_ns = tail_ns + tail, usual_ns + usual
        if len(path) > depth and depth < DEEPEST:
            below.setdefault(path[depth], []).append((path, tail, usual))
    calls = [
        grow(inner, parts, depth + 1, least)
        for inner, parts in below.items()
        if sum(tail for _, tail, _ in parts) >= least
    ]
    calls.sort(key=lambda call: (-call.tail_ns, call.name))
    return Call(name, tail_ns, usual_ns, tuple(calls))


def paths(samples: Samples, cause: str, mean_ns: float) -> dict[Path, float]:
    """A cause's mean divided among the paths of its samples."""
    found: dict[Path, float] = {}
    known = {key: outermost_first(stack) for key, stack in samples.stacks.items()}
    entries = np.flatnonzero(np.array([one == cause for one in samples.cause], dtype=bool))
    for entry in entries:
        path = known.get(int(samples.stack[entry]), (CUT,))
        found[path] = found.get(path, 0.0) + float(samples.ns[entry] * samples.weight[entry])
    whole = max(sum(found.values()), 1e-9)
    return {path: mean_ns * ns / whole for path, ns in found.items()}


def outermost_first(stack: Stack) -> Path:
    """The names on a stack; one that ends early begins with a name that says so."""
    names = tuple(frame.name for frame in reversed(stack.frames))
    return names if stack.whole else (CUT, *names)
