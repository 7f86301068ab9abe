"""Faults for `record --span request`: servers whose requests share a thread, move between threads,
or ask another server."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from thirdparty.case import KEPT, Case
from thirdparty.faults import FAULTS, STOPPED, Fault, Plant, now_and_then, stopped
from thirdparty.followed_servers import (
    AskingPool,
    Asyncio,
    Go,
    JavaPool,
    JavaWorker,
    Loop,
    Node,
    Offloading,
    Pool,
    Proxy,
    Threads,
    Tokio,
)

#: How `tailscope record` follows requests.
OPTIONS = ("--span", "request")
#: How often slow requests come, in s, and the path of one, which computes for 15 ms.
SLOW_EVERY_S, SLOW = 0.2, "/w/slow?work=15000&ask=0&after=0"


@contextmanager
def backend_stopped(case: Case) -> Iterator[None]:
    """Signals that stop the backend and have it go on."""
    pid = case.backend.pid  # type: ignore[attr-defined]

    def send(number: int) -> None:
        os.kill(pid, number)

    with now_and_then(lambda: send(signal.SIGSTOP), lambda: send(signal.SIGCONT)):
        yield


def asked(path: str, every_s: float = SLOW_EVERY_S) -> Plant:
    """A client of its own, which sends a request now and then."""

    @contextmanager
    def plant(case: Case) -> Iterator[None]:
        with socket.create_connection(("127.0.0.1", case.port), timeout=10) as client:
            over = threading.Event()

            def ask() -> None:
                while not over.wait(every_s):
                    client.sendall(f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())
                    client.recv(4096)

            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()

    return plant


def _followed(
    case: type[Case], plant: Plant, *causes: str, blamed: str = "", only_blamed: bool = False
) -> Fault:
    name = (lambda case: blamed.format(case=case)) if blamed else None
    about = {"blamed": name, "only_blamed": only_blamed, "options": OPTIONS}
    return Fault(case, KEPT, plant, frozenset(causes), **about)


_ASKING = {
    **{"proxy": Proxy, "asyncio": Asyncio, "node": Node, "go": Go, "tokio": Tokio},
    **{"pool": AskingPool, "java pool": JavaPool},
}
#: Servers whose one thread, or whose only worker, a slow request keeps.
_KEPT = {"asyncio": Loop, "node": Node, "pool": Pool, "java pool": JavaWorker}

FOLLOWED: dict[str, Fault] = {
    **{
        f"{name}: backend": _followed(
            case, backend_stopped, "downstream", blamed="127.0.0.1:{case.backend_port}"
        )
        for name, case in _ASKING.items()
    },
    **{f"{name}: stopped": _followed(case, stopped, *STOPPED) for name, case in _ASKING.items()},
    **{
        f"{name}: slow request": _followed(
            case, asked(SLOW), "queue", blamed="GET /w/slow", only_blamed=True
        )
        for name, case in _KEPT.items()
    },
    "python: interpreter": _followed(
        Threads, asked("/report", every_s=0.1), "lock", blamed="report (GIL)"
    ),
    "python: file lock": replace(FAULTS["file-lock"], options=OPTIONS),
    "asyncio: sleeping thread": _followed(Offloading, asked("/now?sleep", every_s=0.06), "sleep"),
}
