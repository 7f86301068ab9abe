"""`--span request` where the recorder can't keep up: requests are missing, and none is wrong."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.waiting import until

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "crowdserver.py"
REQUEST = b"GET /w HTTP/1.1\r\nHost: lab\r\n\r\n"
#: What fills the rings of all CPUs (1 MiB each at most) while nobody reads them, and more; and how
#: often. Each time it is chance whether a request has begun that does not end.
FLOOD, ROUNDS = 20_000, 6
#: Between two requests of a connection that does not flood: far longer than any of them takes.
THINKS_S = 0.05


class Client:
    """A connection that measures each of its requests."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.longest_ns = 0
        self.requests = 0

    def ask(self) -> None:
        """One request and its answer."""
        began = time.monotonic_ns()
        self.socket.sendall(REQUEST)
        answer = b""
        while not answer.endswith(b"done"):
            part = self.socket.recv(4096)
            assert part, answer
            answer += part
        self.longest_ns = max(self.longest_ns, time.monotonic_ns() - began)
        self.requests += 1

    def ask_until(self, stop: threading.Event) -> None:
        """One request after the other, with time in between."""
        while not stop.wait(THINKS_S):
            self.ask()


def flood(port: int, recorder: Recorder) -> list[Client]:
    """Requests of several connections, and many while the recorder stands still, so that it loses
    some of them."""
    slow, fast = [Client(port) for _ in range(4)], Client(port)
    stop = threading.Event()
    threads = [threading.Thread(target=client.ask_until, args=(stop,)) for client in slow]
    for thread in threads:
        thread.start()
    try:
        for number in range(ROUNDS):
            until(
                lambda least=number: all(client.requests > least for client in slow),
                "each connection has gone on",
            )
            os.kill(recorder.pid, signal.SIGSTOP)
            for _ in range(FLOOD):
                fast.ask()
            os.kill(recorder.pid, signal.SIGCONT)
            fast.ask()
    finally:
        os.kill(recorder.pid, signal.SIGCONT)
        stop.set()
        for thread in threads:
            thread.join()
    return [*slow, fast]


def test_what_the_recorder_lost_makes_no_request_longer(
    record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    with Started([sys.executable, SERVER, port]) as server:
        until(lambda: answers(port), "the server serves its port")
        recorder = record("--span", "request", "-p", server.pid).ready()
        clients = flood(port, recorder)
        recorder.interrupt().clean()
    lost = about(folder / "ledger")["lost"]
    assert lost["slices"] > 0, "nothing was lost, so nothing was tried"
    assert lost["incomplete"] > 0, lost
    ((longest, rows),) = ledger.query(folder / "ledger", "SELECT max(wall_ns), count(*) FROM spans")
    assert longest <= max(client.longest_ns for client in clients) + 1_000_000
    assert 0 < rows <= sum(client.requests for client in clients)


SERIAL_SERVER = """
import socket, sys, time
address = sys.argv[1]
if address.startswith("/"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
else:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", int(address)))
listener.listen()
print("listens", flush=True)
while True:
    connection, _ = listener.accept()
    connection.recv(4096)
    connection.sendall(b"done")
    connection.close()
    time.sleep(0.03)
"""


@pytest.mark.parametrize("family", [socket.AF_UNIX, socket.AF_INET])
def test_a_request_begins_when_its_data_comes_and_waits_to_be_accepted(
    record: Callable[..., Recorder], folder: Path, family: socket.AddressFamily
) -> None:
    port = free_port()
    path = str(folder / "server.sock")
    address, argument = (path, path) if family == socket.AF_UNIX else (("127.0.0.1", port), port)
    walls = []
    with Started([sys.executable, "-c", SERIAL_SERVER, argument]) as server:
        until(lambda: "listens" in server.out or not server.runs, "the server listens")
        assert server.runs, server.wait()
        recorder = record("--span", "request", "-p", server.pid).ready()
        for _ in range(20):
            with socket.socket(family) as client:
                began = time.monotonic_ns()  # the wait begins with the end of the handshake
                client.connect(address)
                client.sendall(REQUEST)
                assert client.recv(4096) == b"done"
                walls.append(time.monotonic_ns() - began)
        recorder.interrupt().clean()
    query = "SELECT wall_ns, accept_ns FROM spans ORDER BY start_ns"
    found = ledger.query(folder / "ledger", query)
    assert len(found) == len(walls)
    # On the first connection to a Unix socket nobody has received yet on one of this listener.
    for (wall, accept), seen in zip(found[1:], walls[1:], strict=True):
        assert 25_000_000 < wall <= seen
        assert 25_000_000 < accept <= wall
