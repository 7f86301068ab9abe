"""Faults for `record --span request`: servers whose requests share a thread, move between threads,
or ask another server."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import ClassVar

from proof.machine import PROGRAMS
from proof.ports import free_port
from truth.kinds import LOOP, OFFLOADS, WAITS

from thirdparty.case import KEPT, Case
from thirdparty.faults import STOPPED, Fault, Plant, now_and_then, stopped
from thirdparty.own import AsyncioGateway, GoGateway, NginxProxy

#: How `tailscope record` follows requests.
OPTIONS = ("--span", "request")
#: How often a slow request comes, and how long it keeps its thread, in s.
SLOW_EVERY_S, SLOW_US = 0.2, 15_000


class Followed(Case):
    """A server of lab/truth that computes for 300 µs."""

    rates: ClassVar = {"/w/usual?work=200&after=100": 400}
    connections: ClassVar = 8

    @contextmanager
    def striking(self) -> Iterator[None]:
        """A client whose request keeps the server's one thread."""
        with socket.create_connection(("127.0.0.1", self.port)) as slow:
            over = threading.Event()

            def ask() -> None:
                while not over.wait(SLOW_EVERY_S):
                    slow.sendall(f"GET /w/slow?work={SLOW_US} HTTP/1.1\r\n\r\n".encode())
                    slow.recv(4096)

            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()


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


class AskingPool(Followed):
    """Workers behind a queue, each with a connection to a backend."""

    title = "pool with a backend"
    rates: ClassVar = {"/w/usual?work=200&ask=200&after=100": 300}
    WORKERS = 4

    def start(self) -> None:
        port = free_port()
        self.backend = self.run(PROGRAMS / "slowbackend", "--port", port, port=port)
        self.backend_port = port
        program = (PROGRAMS / "poolserver", "--port", self.port, "--workers", self.WORKERS)
        self.process = self.run(*program, "--backend", port)


class Threads(Case):
    """A thread of Python for each connection."""

    title = "threads of Python"
    rates: ClassVar = {"/turn": 300}

    def start(self) -> None:
        self.process = self.run(sys.executable, WAITS, self.port, free_port())

    @contextmanager
    def striking(self) -> Iterator[None]:
        """A client after whose requests a thread of the server computes."""
        with socket.create_connection(("127.0.0.1", self.port)) as client:

            def ask() -> None:
                client.sendall(b"GET /report HTTP/1.1\r\n\r\n")
                client.recv(4096)

            with now_and_then(ask, lambda: None):
                yield


class Offloading(Case):
    """An event loop whose work threads do, one request in twenty with a sleep."""

    title = "asyncio with threads"
    rates: ClassVar = {"/now": 285, "/now?sleep": 15}

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


@contextmanager
def backend_stopped(case: Case) -> Iterator[None]:
    """Signals that stop the backend and have it go on."""
    pid = case.backend.pid  # type: ignore[attr-defined]

    def send(number: int) -> None:
        os.kill(pid, number)

    with now_and_then(lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)):
        yield


def striking(case: Case) -> AbstractContextManager[None]:
    """What the case has beside its load."""
    return case.striking()  # type: ignore[attr-defined]


def nothing(_: Case) -> AbstractContextManager[None]:
    """The load itself is the fault."""
    return nullcontext()


def _followed(case: type[Case], plant: Plant, *causes: str, blamed: str = "") -> Fault:
    name = (lambda case: blamed.format(case=case)) if blamed else None
    return Fault(case, KEPT, plant, frozenset(causes), blamed=name, options=OPTIONS)


_ASKING = {"proxy": Proxy, "asyncio": Asyncio, "go": Go, "pool": AskingPool}

FOLLOWED: dict[str, Fault] = {
    **{
        f"{name}: backend": _followed(
            case, backend_stopped, "downstream", blamed="127.0.0.1:{case.backend_port}"
        )
        for name, case in _ASKING.items()
    },
    **{f"{name}: stopped": _followed(case, stopped, *STOPPED) for name, case in _ASKING.items()},
    "asyncio: slow request": _followed(Loop, striking, "queue", blamed="GET /w/slow"),
    "pool: slow request": _followed(Pool, striking, "queue", blamed="GET /w/slow"),
    "python: interpreter": _followed(Threads, striking, "lock", blamed="report (GIL)"),
    "asyncio: sleeping thread": _followed(Offloading, nothing, "sleep"),
}
