"""Names of `--span request`: which there are, which there must not be, and traces."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.agent import Agent
from rig.processes import Started, favoured
from rig.recorder import Recorder, about
from rig.waiting import until
from truth.clients import name_of

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "crowdserver.py"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def server() -> Iterator[tuple[int, int]]:
    """The process and the port of a server that answers anything."""
    port = free_port()
    with Started([sys.executable, SERVER, port]) as started:
        until(lambda: answers(port) or not started.runs, "the server serves its port")
        assert started.runs, started.wait()
        yield started.pid, port


class Client:
    """One connection, one request after the other."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""

    def send(self, path: str, headers: Sequence[str] = ()) -> None:
        """Sends a request."""
        lines = [f"GET {path} HTTP/1.1", "Host: lab", *headers, "", ""]
        self.socket.sendall("\r\n".join(lines).encode())

    def receive(self) -> None:
        """Waits for the answer."""
        while not self.answer.endswith(b"done"):
            part = self.socket.recv(4096)
            assert part, "the server has closed the connection"
            self.answer += part
        self.answer = b""

    def ask(self, path: str, headers: Sequence[str] = ()) -> None:
        """Both."""
        self.send(path, headers)
        self.receive()


def ask_all(port: int, paths: Sequence[str], recorder: Recorder, connections: int = 100) -> None:
    """Requests these paths, as many at a time as there are connections, and no faster than the
    recorder can follow: it loses rows where it waits for a CPU meanwhile."""
    clients = [Client(port) for _ in range(connections)]
    for number, some in enumerate(batched(paths, connections)):
        if number % 4 == 0:
            recorder.keeps_up()
        asked = list(zip(clients, some, strict=False))
        for client, path in asked:
            client.send(path)
        for client, _ in asked:
            client.receive()
    for client in clients:
        client.socket.close()


def batched(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The items in groups of this size."""
    for first in range(0, len(paths), size):
        yield paths[first : first + size]


def test_names_stay_exact_under_a_scanner(
    record: Callable[..., Recorder], folder: Path, server: tuple[int, int]
) -> None:
    """Paths that come once are one kind, and those that recur have all their requests."""
    pid, port = server
    recorder = record("--span", "request", "-p", pid, under=favoured()).ready()
    paths = [f"/scan/{name_of(number)}" for number in range(8000)]
    pages = [f"/page/{name_of(number % 200)}" for number in range(4000)]
    for number, path in enumerate(pages):  # the scanner comes first
        paths.insert(1000 + 2 * number, path)
    ask_all(port, paths, recorder)
    sent = Counter(pages)
    recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    found, said = ledger.count_by_span(folder / "ledger"), about(folder / "ledger")
    assert not {key: count for key, count in said["lost"].items() if count}, said["lost"]
    assert sum(found.values()) == 8000 + sum(sent.values()), said["uncovered"]
    assert {path: found.get(f"GET {path}", 0) for path in sent} == dict(sent)
    assert found["(other)"] == said["uncovered"]["unnamed"] > 6500
    explained = ledger.explain(folder / "ledger", options=("--span", f"GET /page/{name_of(7)}"))
    assert any("(other)" in notice for notice in explained["notices"]), explained["notices"]
    both = (folder / "ledger", folder / "ledger")
    page = f"GET /page/{name_of(7)}"
    shown = subprocess.run(
        [installed.tailscope(), "diff", *both, "--span", page, "--json"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert [kind["span"] for kind in json.loads(shown.stdout)["kinds"]] == [page], shown


@pytest.mark.parametrize("option", ["--no-names", "--name=redis"])
def test_a_server_whose_paths_are_private_has_no_names(
    option: str, record: Callable[..., Recorder], folder: Path, server: tuple[int, int]
) -> None:
    pid, port = server
    recorder = record("--span", "request", option, "-p", pid).ready()
    client = Client(port)
    for _ in range(50):
        client.ask("/secret/path")
    recorder.interrupt().clean()
    assert ledger.count_by_span(folder / "ledger") == {"request": 50}
    secret = [path for path in (folder / "ledger").rglob("*") if path.is_file()]
    assert not any(b"secret" in path.read_bytes() for path in secret)


def test_a_trace_is_kept_and_nothing_else_of_the_headers(
    record: Callable[..., Recorder], folder: Path, server: tuple[int, int]
) -> None:
    pid, port = server
    recorder = record("--span", "request", "--traceparent", "-p", pid).ready()
    client = Client(port)
    cookie = "Cookie: session=hidden; t=tracepar; " + "x" * 900
    for _ in range(40):
        client.ask("/plain", [cookie])
        client.ask("/traced", [cookie, f"TraceParent:  00-{TRACE}-{PARENT}-01", "X-Last: 1"])
        client.ask("/broken", ["traceparent: 00-nonsense"])
    recorder.interrupt().clean()
    found = ledger.query(
        folder / "ledger",
        "SELECT span, count(*), count(trace_high), any_value(format('{:x}{:x}', trace_high, "
        "trace_low & 9223372036854775807)), any_value(trace_parent) FROM spans GROUP BY span "
        "ORDER BY span",
    )
    low = int(TRACE[16:], 16) & (2**63 - 1)
    expected = f"{int(TRACE[:16], 16):x}{low:x}"
    assert found == [
        ("GET /broken", 40, 0, None, None),
        ("GET /plain", 40, 0, None, None),
        ("GET /traced", 40, 40, expected, int(PARENT, 16)),
    ]
    explained = ledger.explain(folder / "ledger", options=("--span", "GET /traced"))
    assert {span["trace_id"] for span in explained["worst"]} == {TRACE}
    assert {span["parent_id"] for span in explained["worst"]} == {PARENT}
    kept = [path for path in (folder / "ledger").rglob("*") if path.is_file()]
    assert not any(b"hidden" in path.read_bytes() for path in kept)


def test_top_shows_kinds_by_name(recordable: None, server: tuple[int, int]) -> None:
    pid, port = server
    command = [
        installed.tailscope(),
        "top",
        "--span",
        "request",
        "-p",
        pid,
        "--json",
        "-i",
        "200ms",
    ]
    with Started(command) as top:
        client = Client(port)

        def seen() -> set[str]:
            client.ask("/search?q=secret")
            client.ask("/items/4711")
            pictures = [json.loads(line) for line in top.out.splitlines() if line.endswith("}")]
            return {kind["name"] for kind in pictures[-1]["kinds"]} if pictures else set()

        wanted = {"GET /search", "GET /items/{id}"}
        until(lambda: seen() >= wanted or not top.runs, "top shows both kinds")
        assert seen() >= wanted, top.stop(signal.SIGINT)
        top.stop(signal.SIGINT)


def test_the_agent_has_figures_by_name(
    agent: Callable[..., Agent], server: tuple[int, int]
) -> None:
    pid, port = server
    started = agent(f"pid = {pid}", record='spans = ["request"]\ntraceparent = true')
    client = Client(port)

    def counted() -> float:
        client.ask("/search?q=secret")
        return started.figures().get("tailscope_span_duration_seconds_count{span=GET /search}", 0)

    until(lambda: counted() >= 10, "ten requests of that name are counted")
