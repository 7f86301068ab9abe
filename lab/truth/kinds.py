"""The kinds of servers whose requests are held against the truth that they write down."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from proof.machine import PROGRAMS
from thirdparty import built

from truth.clients import Mix

HERE = Path(__file__).resolve().parent
LOOP = HERE / "loopserver.py"
WAITS, OFFLOADS = HERE / "waitserver.py", HERE / "offloadserver.py"

#: What requests of a server with a backend are like; a third of them ask nothing.
ASKING = {"work": (200, 500), "ask": (0, 500, 2000)}
#: Those of a pool that asks nobody.
POOL = Mix(work=(200, 500), after=(100,), pause=3000)
#: Starts a server by its own port and its backend's; raises `built.Lacking`.
Command = Callable[[int, int], list[str]]


@dataclass(frozen=True)
class Kind:
    """A server, and the load that it gets."""

    title: str
    mix: Mix
    connections: int
    command: Command


def _loop(connections: int) -> Kind:
    mix = Mix(**ASKING, after=(100, 300), pause=2000 * connections)
    title = f"event loop with a backend, connections: {connections}"
    return Kind(title, mix, connections, _python)


def _python(port: int, backend: int) -> list[str]:
    return [sys.executable, str(LOOP), str(port), str(backend)]


def _pool_command(workers: int, asks: bool) -> Command:
    def command(port: int, backend: int) -> list[str]:
        pool = [str(PROGRAMS / "poolserver"), "--port", str(port), "--workers", str(workers)]
        return [*pool, "--backend", str(backend)] if asks else pool

    return command


def _pool(workers: int) -> Kind:
    return Kind(f"pool, workers: {workers}", POOL, 4, _pool_command(workers, asks=False))


def _asking_pool(workers: int, connections: int, pause: int) -> Kind:
    mix = Mix(**ASKING, after=(100,), pause=pause)
    title = f"pool with a backend, workers: {workers}"
    return Kind(title, mix, connections, _pool_command(workers, asks=True))


def _go(port: int, backend: int) -> list[str]:
    return [str(built.go("goserver", HERE / "goserver")), str(port), str(backend)]


def _java(port: int, backend: int) -> list[str]:
    # So little memory is used that nothing is collected.
    options = ["-XX:+UseSerialGC", "-Xmn512m"]
    return [built.path("java"), *options, str(HERE / "ThreadServer.java"), str(port), str(backend)]


def _java_pool(port: int, backend: int) -> list[str]:
    return [*_java(port, backend), "2"]


def _connections(title: str, connections: int, command: Command) -> Kind:
    mix = Mix(**ASKING, after=(100, 300), pause=2500 * connections)
    return Kind(f"{title} with a backend, connections: {connections}", mix, connections, command)


KINDS = {
    "loop-1": _loop(1),
    "loop-4": _loop(4),
    "pool-1": _pool(1),
    "pool-2": _pool(2),
    "pool-backend-1": _asking_pool(1, 4, 8000),
    "pool-backend-2": _asking_pool(2, 4, 8000),
    "pool-backend-4": _asking_pool(4, 8, 6000),
    "go-4": _connections("goroutines", 4, _go),
    "java-4": _connections("threads of a JVM", 4, _java),
    "java-pool-2": _connections("pool of a JVM, workers: 2,", 4, _java_pool),
}
