"""The kinds of servers whose requests are held against the truth that they write down."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from proof.machine import PROGRAMS

from truth.clients import Mix

LOOP = Path(__file__).resolve().parent / "loopserver.py"

#: What requests of a server with a backend are like; a third of them ask nothing.
ASKING = {"work": (200, 500), "ask": (0, 500, 2000)}


@dataclass(frozen=True)
class Kind:
    """A server, and the load that it gets."""

    title: str
    mix: Mix
    connections: int
    #: Threads of a pool; 0: an event loop.
    workers: int = 0
    asks: bool = True

    def command(self, port: int, backend: int) -> list[str]:
        """Starts it."""
        if not self.workers:
            return [sys.executable, str(LOOP), str(port), str(backend)]
        pool = [str(PROGRAMS / "poolserver"), "--port", str(port), "--workers", str(self.workers)]
        return [*pool, "--backend", str(backend)] if self.asks else pool


def _loop(connections: int) -> Kind:
    mix = Mix(**ASKING, after=(100, 300), pause=2000 * connections)
    return Kind(f"event loop with a backend, connections: {connections}", mix, connections)


def _pool(workers: int) -> Kind:
    mix = Mix(work=(200, 500), after=(100,), pause=3000)
    return Kind(f"pool, workers: {workers}", mix, 4, workers, asks=False)


def _asking_pool(workers: int, connections: int, pause: int) -> Kind:
    mix = Mix(**ASKING, after=(100,), pause=pause)
    return Kind(f"pool with a backend, workers: {workers}", mix, connections, workers)


KINDS = {
    "loop-1": _loop(1),
    "loop-4": _loop(4),
    "pool-1": _pool(1),
    "pool-2": _pool(2),
    "pool-backend-1": _asking_pool(1, 4, 8000),
    "pool-backend-2": _asking_pool(2, 4, 8000),
    "pool-backend-4": _asking_pool(4, 8, 6000),
}
