"""Connections that another process serves than the one that accepts them: each request is a row."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.waiting import until

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "handover.py"
CONNECTIONS, ROUNDS = 20, 20


def ask(port: int) -> int:
    """Each connection sends its requests one after the other; how many were answered."""
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    answered = 0
    for _ in range(ROUNDS):
        for client in clients:
            client.sendall(b"GET /w HTTP/1.1\r\n\r\n")
        for client in clients:
            answer = b""
            while not answer.endswith(b"done"):
                part = client.recv(4096)
                assert part, answer
                answer += part
            answered += 1
    for client in clients:
        client.close()
    return answered


@pytest.mark.parametrize("span", ["request", "syscall:ready..send"])
@pytest.mark.parametrize("way", ["pass", "fork"])
def test_each_request_is_a_row_whoever_accepted_its_connection(
    way: str, span: str, record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    with Started([sys.executable, SERVER, port, way]) as server:
        until(lambda: server.out and answers(port), "the server serves its port")
        recorder = record("--span", span, "-p", server.out.split()[0]).ready()
        answered = ask(port)
        recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    said = about(folder / "ledger")
    assert answered == CONNECTIONS * ROUNDS
    assert not {key: count for key, count in said["lost"].items() if count}, said["lost"]
    assert ledger.count(folder / "ledger") == answered
