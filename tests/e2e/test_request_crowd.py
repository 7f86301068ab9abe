"""`--span request` with thousands of connections, pipelining and half-closed sockets: the counts
balance, and nothing is lost in silence."""

from __future__ import annotations

import json
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.waiting import until

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "crowdserver.py"
#: The larger number is among the tests that take longer.
CONNECTIONS = (3000, pytest.param(10_000, marks=pytest.mark.more))
ROUNDS = 4
#: Each of these connections, by its number modulo ten, does something else with a last request.
PIPELINED, HALF_CLOSED, UNANSWERED, RESET = 0, 1, 2, 3
TOGETHER = 16


@contextmanager
def descriptors() -> Iterator[None]:
    """As many as this process may have."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def request(path: str) -> bytes:
    """A request without a body."""
    return f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode()


def drain(clients: list[socket.socket], wanted: int) -> int:
    """Receives until each connection has its answers or ends; returns how many came."""
    missing = {client.fileno(): wanted for client in clients}
    came = 0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(30)
            assert ready, f"{len(selector.get_map())} connections got no answer"
            for key, _ in ready:
                client = key.fileobj
                assert isinstance(client, socket.socket)
                part = client.recv(65536)
                answered = part.count(b"done")
                came += answered
                missing[key.fd] -= answered
                if not part or missing[key.fd] <= 0:
                    selector.unregister(client)
    return came


def crowd(port: int, connections: int) -> dict[str, int]:
    """Sends all requests; how many of each kind were sent."""
    sent = dict.fromkeys(("plain", "pipelined", "half closed", "unanswered"), 0)
    with ExitStack() as open_until, descriptors():
        clients = [
            open_until.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(connections)
        ]
        for _ in range(ROUNDS):
            for client in clients:
                client.sendall(request("/plain"))
            assert drain(clients, 1) == connections
            sent["plain"] += connections
        groups: dict[int, list[socket.socket]] = {kind: [] for kind in range(4)}
        for number, client in enumerate(clients):
            groups.get(number % 10, []).append(client)
        for _ in range(ROUNDS):
            for client in groups[PIPELINED]:
                client.sendall(request("/pipelined") * TOGETHER)
            together = TOGETHER * len(groups[PIPELINED])
            assert drain(groups[PIPELINED], TOGETHER) == together
            sent["pipelined"] += together
        for client in groups[HALF_CLOSED]:
            client.sendall(request("/late"))
            client.shutdown(socket.SHUT_WR)
            sent["half closed"] += 1
        assert drain(groups[HALF_CLOSED], 1) == sent["half closed"]
        for client in groups[UNANSWERED]:
            client.sendall(request("/never"))
            sent["unanswered"] += 1
        assert drain(groups[UNANSWERED], 1) == 0
        for client in groups[RESET]:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
    return sent


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_counts_balance_with_thousands_of_connections(
    record: Callable[..., Recorder], folder: Path, connections: int
) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < connections + 100:
        pytest.skip(f"this process may not have {connections} descriptors")
    port = free_port()
    with Started([sys.executable, SERVER, port]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        recorder = record("--span", "request", "-p", server.pid).ready()
        sent = crowd(port, connections)
        recorder.interrupt().clean()
        received = json.loads(server.stop(signal.SIGTERM).clean().out)
    ledger.check_books(folder / "ledger")
    said = about(folder / "ledger")
    rows = ledger.count_by_span(folder / "ledger")
    uncovered = {key: count for key, count in said["uncovered"].items() if count}
    assert not {key: count for key, count in said["lost"].items() if count}, said["lost"]
    assert received["requests"] == sum(sent.values())
    assert rows["GET /plain"] == sent["plain"]
    assert rows["GET /late"] == sent["half closed"]
    assert "GET /never" not in rows
    assert uncovered["unanswered"] == sent["unanswered"], uncovered
    # Requests that came together are a row or more, and the rest of them an estimate.
    together = sum(count for name, count in rows.items() if name not in ("GET /plain", "GET /late"))
    assert 0 < together < sent["pipelined"]
    assert together + uncovered["pipelined"] == pytest.approx(sent["pipelined"], rel=0.5)


@pytest.mark.parametrize("span", ["request", "syscall:ready..send"])
def test_pairs_of_short_requests_after_a_long_one_are_counted(
    record: Callable[..., Recorder], folder: Path, span: str
) -> None:
    pairs = 640  # a look at one receive in 16
    port = free_port()
    with Started([sys.executable, SERVER, port]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        recorder = record("--span", span, "-p", server.pid).ready()
        with socket.create_connection(("127.0.0.1", port)) as client:
            # One in 16 of these is looked at, so the size of a long request is known.
            for _ in range(2 * 16):
                client.sendall(request("/long" + "x" * 400))
                assert drain([client], 1) == 1
            for _ in range(pairs):
                client.sendall(request("/short") * 2)
                assert drain([client], 2) == 2
        recorder.interrupt().clean()
        server.stop(signal.SIGTERM).clean()
    uncovered = about(folder / "ledger")["uncovered"]
    rows = sum(ledger.count_by_span(folder / "ledger").values()) - 2 * 16
    assert pairs <= rows < 2 * pairs
    assert rows + uncovered["pipelined"] == pytest.approx(2 * pairs, rel=0.15)
