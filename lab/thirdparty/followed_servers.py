"""Servers whose requests share a thread, move between threads, or ask another server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from proof.machine import PROGRAMS
from proof.ports import free_port
from truth.kinds import HERE as TRUTH
from truth.kinds import LOOP, OFFLOADS, WAITS

from thirdparty import built
from thirdparty.behind import Behind
from thirdparty.case import Case
from thirdparty.known import Axum
from thirdparty.own import AsyncioGateway, GoGateway, NginxProxy


class Followed(Case):
    """A server of lab/truth that computes for 300 µs."""

    rates: ClassVar = {"/w/usual?work=200&after=100": 400}
    connections: ClassVar = 8


class Loop(Followed):
    """An event loop."""

    title = "asyncio"

    def start(self) -> None:
        self.process = self.run(sys.executable, LOOP, self.port, free_port())


class Pool(Followed):
    """One worker behind a queue."""

    title = "pool of one"
    WORKERS = 1

    def start(self) -> None:
        program = (PROGRAMS / "poolserver", "--port", self.port, "--workers", self.WORKERS)
        self.process = self.run(*program)


class Asking(Followed):
    """A server of lab/truth whose backend takes 200 µs."""

    rates: ClassVar = {"/w/usual?work=200&ask=200&after=100": 300}

    def start_backend(self) -> int:
        """Starts it, and returns its port."""
        self.backend_port = port = free_port()
        self.backend = self.run(PROGRAMS / "slowbackend", "--port", port, port=port)
        return port


class AskingPool(Asking):
    """Workers behind a queue, each with a connection to a backend."""

    title = "pool with a backend"
    WORKERS = 4

    def start(self) -> None:
        program = (PROGRAMS / "poolserver", "--port", self.port, "--workers", self.WORKERS)
        self.process = self.run(*program, "--backend", self.start_backend())


class Threads(Case):
    """A thread of Python for each connection."""

    title = "threads of Python"
    rates: ClassVar = {"/turn": 300}

    def start(self) -> None:
        self.process = self.run(sys.executable, WAITS, self.port, free_port())


class Offloading(Case):
    """An event loop whose work threads do."""

    title = "asyncio with threads"
    rates: ClassVar = {"/now": 285}

    def start(self) -> None:
        self.process = self.run(sys.executable, OFFLOADS, self.port)


class Proxy(NginxProxy):
    """nginx, whose backend answers at once."""

    rates: ClassVar = {"/": 300}

    @property
    def pids(self) -> list[int]:
        """The worker: the master has no requests."""
        master = self.process.pid
        children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
        return [int(child) for child in children]


class Asyncio(AsyncioGateway):
    """asyncio, whose backend answers at once."""

    rates: ClassVar = {"/": 300}


class Go(GoGateway):
    """Go, whose backend answers at once."""

    rates: ClassVar = {"/": 300}


class Node(Behind):
    """Node.js, whose backend answers at once."""

    title = "Node.js with a backend"
    rates: ClassVar = {"/": 300}

    def start(self) -> None:
        program = built.SOURCES / "gateway.js"
        self.process = self.run(built.path("node"), program, self.port, self.start_backend())


class Tokio(Axum):
    """axum on tokio, whose backend answers at once."""

    rates: ClassVar = {"/": 300}


class JavaPool(Asking):
    """Two workers of a JVM behind a queue, each with a connection to a backend."""

    title = "pool of a JVM with a backend"
    warm_up_s: ClassVar = 5.0
    WORKERS = 2

    def start(self) -> None:
        options = ("-XX:+UseSerialGC", "-Xmn512m")  # so little is used that nothing is collected
        program = (built.path("java"), *options, TRUTH / "ThreadServer.java")
        self.process = self.run(*program, self.port, self.start_backend(), self.WORKERS)


class JavaWorker(JavaPool):
    """One worker, so that a slow request leaves a CPU to those who receive."""

    title = "pool of a JVM, one worker"
    rates: ClassVar = {"/w/usual?work=200&ask=200&after=100": 150}
    WORKERS = 1
