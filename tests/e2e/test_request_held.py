"""Answers that TCP holds back: they end when they have left, whatever leaves after them."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rig import ledger
from rig.processes import Started
from rig.recorder import Recorder
from rig.waiting import until

ROUNDS = 30
#: What the client does between two requests, and by how much the clocks may differ.
THINKS_S, OFF_NS = 0.02, 1_000_000

# It acknowledges each request at once, which is before it has read it.
SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], file=sys.stderr, flush=True)
connection, _ = listener.accept()
while True:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    if not connection.recv(100):
        break
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
    connection.sendall(b"answer")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
"""


@pytest.mark.parametrize("source", ["request", "syscall:ready..send"])
def test_an_answer_ends_when_it_leaves_and_not_with_a_later_ack(
    record: Callable[..., Recorder], folder: Path, source: str
) -> None:
    seen = []
    with Started(["python3", "-c", SERVER]) as server:
        until(lambda: server.err.endswith("\n"), "the server says its port")
        recorder = record("-p", server.pid, "--span", source).ready()
        with socket.create_connection(("127.0.0.1", int(server.err)), timeout=60) as client:
            for _ in range(ROUNDS):
                before = time.time_ns()
                client.sendall(b"request")
                assert client.recv(100) == b"answer"
                seen.append(time.time_ns() - before)
                time.sleep(THINKS_S)
        recorder.interrupt().clean()
    query = "SELECT wall_ns, tcp_by FROM spans ORDER BY start_ns"
    spans = ledger.query(folder / "ledger", query)
    assert len(spans) == ROUNDS
    assert sum(why == "cork" for _, why in spans) >= ROUNDS / 2, spans
    for (wall, _), of_client in zip(spans, seen, strict=True):
        assert wall < of_client + OFF_NS, (wall, of_client, spans)
