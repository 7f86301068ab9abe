"""Requests over UDP: a server has one socket for all clients, and each datagram is a request."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from proof.ports import free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder
from rig.waiting import until
from truth.udpserver import WORK_S

pytestmark = pytest.mark.measures

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "udpserver.py"
#: Requests at once, and how long the upstream takes.
AT_ONCE, UPSTREAM_S = 100, 0.05
LONGEST_S = 10
#: By how much both clocks may differ.
OFF_NS = 1_000_000


def client(port: int) -> socket.socket:
    """A socket of its own."""
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.connect(("127.0.0.1", port))
    one.settimeout(LONGEST_S)
    return one


def is_answered(port: int, within_s: float = LONGEST_S) -> bool:
    """Whether the server answers a datagram."""
    with client(port) as one:
        one.settimeout(within_s)
        try:
            one.send(b"w")
            return bool(one.recv(2048))
        except OSError:
            return False


@contextmanager
def upstream() -> Iterator[int]:
    """A server that answers each datagram after UPSTREAM_S; its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(0.1)
        over = threading.Event()
        timers: list[threading.Timer] = []

        def serve() -> None:
            while not over.is_set():
                try:
                    asked, who = own.recvfrom(2048)
                except TimeoutError:
                    continue
                timers.append(threading.Timer(UPSTREAM_S, own.sendto, (asked, who)))
                timers[-1].start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            over.set()
            for one in (thread, *timers):
                one.join()


@dataclass
class Asked:
    """What a client saw of a request, by `time.time_ns`."""

    #: Before and after its send, in which the datagram comes in; and after its answer.
    before: int
    after: int
    received: int = 0


def ask_at_once(port: int, text: bytes) -> list[Asked]:
    """Asks AT_ONCE times before the first answer is looked at."""
    clients = [client(port) for _ in range(AT_ONCE)]
    asked = []
    for one in clients:
        before = time.time_ns()
        one.send(text)
        asked.append(Asked(before, time.time_ns()))

    def wait(one: socket.socket, by: Asked) -> None:
        one.recv(2048)
        by.received = time.time_ns()

    waiting = [
        threading.Thread(target=wait, args=pair) for pair in zip(clients, asked, strict=True)
    ]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    for one in clients:
        one.close()
    return asked


def check(spans: list[tuple[int, ...]], asked: list[Asked]) -> None:
    """Each request is a span, which begins when its datagram came in, and ends with its answer."""
    assert len(spans) == len(asked), spans
    for (start, wall, *_), by in zip(spans, asked, strict=True):
        assert by.before - OFF_NS < start < by.after + OFF_NS, (start - by.before, spans)
        assert start + wall < by.received + OFF_NS, (start + wall - by.received, spans)


@pytest.fixture
def server() -> Iterator[tuple[Started, int]]:
    port = free_port()
    with (
        upstream() as behind,
        Started([*favoured(), sys.executable, SERVER, port, behind]) as started,
    ):
        until(lambda: is_answered(port, 0.2) or not started.runs, "the server answers")
        assert started.runs, started.wait()
        yield started, port


@pytest.fixture
def recorded(
    record: Callable[..., Recorder], folder: Path, server: tuple[Started, int]
) -> Callable[[bytes, str], list[tuple[int, ...]]]:
    """Records AT_ONCE requests, and returns start, wall and that column of each span."""

    def run(text: bytes, column: str) -> list[tuple[int, ...]]:
        started, port = server
        recorder = record("-p", started.pid).ready()
        assert is_answered(port)  # the first one introduces the socket
        asked = ask_at_once(port, text)
        recorder.interrupt().clean()
        ledger.check_books(folder / "ledger")
        query = f"SELECT start_ns, wall_ns, {column} FROM spans ORDER BY start_ns"
        spans = ledger.query(folder / "ledger", query)[1:]
        check(spans, asked)
        return spans

    return run


def test_each_datagram_is_a_request_that_queues_behind_those_before_it(
    recorded: Callable[[bytes, str], list[tuple[int, ...]]],
) -> None:
    # All wait behind the one that has the thread, also while the thread has no CPU.
    spans = recorded(b"w", "queue_ns + runqueue_ns + preempted_ns")
    turns = sum(wall - waits for _, wall, waits in spans)
    assert turns < 2e9 * AT_ONCE * WORK_S, spans


def test_what_a_server_asks_from_a_port_that_it_chose_is_downstream(
    recorded: Callable[[bytes, str], list[tuple[int, ...]]],
) -> None:
    spans = recorded(b"a", "downstream_ns")
    assert all(downstream > UPSTREAM_S * 0.9e9 for *_, downstream in spans), spans
