"""`tailscope timeline story` against what a client measured: no request is lost."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import Begin
from rig.processes import Started
from rig.timeline import leading, stories
from rig.waiting import until

REQUESTS = 200

# Python's own server answers in two writes: the head, and the body.
SERVER = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = sys.argv[1] == "at once"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "200")
        self.end_headers()
        self.wfile.write(b"x" * 200)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], file=sys.stderr, flush=True)
server.serve_forever()
"""


@contextmanager
def threading_server(answers: str) -> Iterator[tuple[int, int]]:
    """Python's ThreadingHTTPServer: its process and its port."""
    with Started(["python3", "-c", SERVER, answers]) as server:
        until(lambda: server.err.endswith("\n"), "the server says its port")
        yield server.pid, int(server.err)


def ask(port: int, keeps: bool) -> list[int]:
    """What a client measured, oldest first, in ns: from before a send to after the last receive."""
    took = []
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for _ in range(REQUESTS):
        if connection.sock is None:
            connection.connect()
        began = time.monotonic_ns()
        connection.request("GET", "/", headers={} if keeps else {"Connection": "close"})
        assert len(connection.getresponse().read()) == 200
        took.append(time.monotonic_ns() - began)
        if not keeps:
            connection.close()
    connection.close()
    return took


def measured(timeline: Begin, answers: str, keeps: bool) -> tuple[list[int], dict[str, Any]]:
    """The same requests by their client and in the story."""
    with threading_server(answers) as (pid, port):
        recorder = timeline("-p", pid, "--keep", "60s", "--memory", "256MB")
        by_client = ask(port, keeps)
        recorder.ask()
        recorder.stop().clean()
    return by_client, stories(recorder.windows()[0], "--slower", "1us", "-n", 10 * REQUESTS)


def check_within(told: dict[str, Any], by_client: list[int]) -> None:
    """A request is from the system call that sent it to the one that received its end.

    So its client saw more.
    """
    in_story = sorted(told["stories"], key=lambda story: story["begin_ns"])
    pairs = zip(in_story, by_client, strict=True)
    longer = [(story, client) for story, client in pairs if story["latency_ns"] > client]
    assert not longer, f"{len(longer)} requests, like one of {longer[0][1]} ns: {longer[0][0]}"


@pytest.mark.parametrize("keeps", [False, True], ids=["short", "kept"])
def test_each_request_of_a_client_is_in_the_story(timeline: Begin, keeps: bool) -> None:
    by_client, told = measured(timeline, "at once", keeps)
    assert not told["losses"], told["losses"]
    assert told["requests"] == len(by_client)
    check_within(told, by_client)
    assert all(story["to_client"] and story["from_packet"] for story in told["stories"])


def test_an_answer_that_nagle_keeps_back_ends_with_its_last_byte(timeline: Begin) -> None:
    by_client, told = measured(timeline, "as it is", keeps=True)
    assert not told["losses"], told["losses"]
    assert told["requests"] == len(by_client)
    check_within(told, by_client)
    # The client acknowledges the first few at once, and then after 40 ms.
    held = sum(n for (kind, _), n in leading(told).items() if kind == "held_by_tcp")
    assert held >= 0.8 * REQUESTS, leading(told)
    names = [name for kind, name in leading(told) if kind == "held_by_tcp"]
    assert all("Nagle" in name for name in names), names
