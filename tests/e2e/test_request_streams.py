"""`--span request` on HTTP/2 and gRPC: requests that overlap on a connection."""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started
from rig.recorder import Recorder, about
from rig.streams import STREAMS, ask, asking
from rig.waiting import until

grpc = pytest.importorskip("grpc")

ROOT = Path(installed.LAB.parent.parent)
RPC_SERVER = ROOT / "lab" / "truth" / "rpcserver.py"
#: What a span and its client's time may differ by, beside the machine's own noise.
SLACK_NS = 1_000_000


class Call(NamedTuple):
    """A call as its client saw it."""

    name: str
    start_ns: int
    wall_ns: int


@contextmanager
def serving(*command: object, port: int) -> Iterator[Started]:
    """A program that serves this port."""
    with Started(command) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        yield server


def call(channel: grpc.Channel, method: str, sleep_us: int) -> Call:
    """Calls a method, whose server sleeps so long."""
    path, secret = f"/lab.v1.TruthfulServiceOfTheLab/{method}", (("secret", "word-" * 300),)
    start = time.time_ns()
    if method.endswith("Parts"):
        list(channel.unary_stream(path)(str(sleep_us).encode(), metadata=secret))
    else:
        channel.unary_unary(path)(str(sleep_us).encode(), metadata=secret)
    return Call(f"POST {path}", start, time.time_ns() - start)


def spans(recorded: Path) -> list[Call]:
    """The rows, by their begin."""
    rows = ledger.query(recorded, "SELECT span, start_ns, wall_ns FROM spans ORDER BY start_ns")
    return [Call(*row) for row in rows]


def check_times(rows: list[Call], calls: list[Call], least_ns: int) -> None:
    """Calls of one thread, one after the other: each row lies within its call."""
    assert len(rows) == len(calls)
    for row, of in zip(rows, calls, strict=True):
        assert of.start_ns - SLACK_NS <= row.start_ns <= of.start_ns + of.wall_ns, (row, of)
        assert row.wall_ns >= least_ns, (row, of)
    longer = [row.wall_ns - of.wall_ns for row, of in zip(rows, calls, strict=True)]
    assert statistics.median(longer) <= SLACK_NS, longer


def nothing_missed(recorded: Path) -> None:
    """Every request is a row. Where threads hand work over, some time may be another's."""
    uncovered = about(recorded)["uncovered"]
    assert not {key: n for key, n in uncovered.items() if n and key != "ambiguous"}, uncovered
    files = [path for path in recorded.rglob("*") if path.is_file()]
    assert not any(b"word" in path.read_bytes() for path in files), "headers were kept"


def test_calls_of_grpc_that_overlap_on_a_connection_are_spans_of_their_own(
    record: Callable[..., Recorder], folder: Path
) -> None:
    """Each thread calls a method of its own, on a connection that they share."""
    port, threads, each = free_port(), 6, 30
    sleeps = [1000 * thread for thread in range(threads)]
    methods = [f"M{thread}" for thread in range(threads - 1)] + ["Parts"]
    with serving(sys.executable, RPC_SERVER, port, port=port) as server:
        recorder = record("--span", "request", "-p", server.pid).ready()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:

            def several(method: str, sleep_us: int) -> list[Call]:
                return [call(channel, method, sleep_us) for _ in range(each)]

            with futures.ThreadPoolExecutor(threads) as pool:
                calls = list(pool.map(several, methods, sleeps))
        recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    nothing_missed(folder / "ledger")
    rows = spans(folder / "ledger")
    assert len(rows) == threads * each
    for method, sleep_us, of in zip(methods, sleeps, calls, strict=True):
        parts = 5 if method == "Parts" else 1
        own = [row for row in rows if row.name == of[0].name]
        check_times(own, of, 1000 * sleep_us * parts)


def test_a_connection_that_was_open_before_is_followed(
    record: Callable[..., Recorder], folder: Path
) -> None:
    """What the connection's table got before the recording has no name, and none is guessed."""
    port = free_port()
    with (
        serving(sys.executable, RPC_SERVER, port, port=port) as server,
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        call(channel, "Before", 0)
        recorder = record("--span", "request", "-p", server.pid).ready()
        calls = [call(channel, method, 500) for method in ("Before", "After") * 50]
        recorder.interrupt().clean()
    nothing_missed(folder / "ledger")
    rows = spans(folder / "ledger")
    check_times(rows, calls, 500_000)
    assert Counter(row.name for row in rows) == {"request": 50, calls[1].name: 50}


def test_a_proxy_of_streams_waits_for_the_streams_that_it_asks(
    record: Callable[..., Recorder], folder: Path
) -> None:
    """Each request of the first server, of Node, is one of the second; both are recorded."""
    port, backend_port = free_port(), free_port()
    with (
        serving("node", STREAMS, "serve", backend_port, port=backend_port) as behind,
        serving("node", STREAMS, "serve", port, backend_port, port=port) as before,
        asking(port) as client,
    ):
        recorders = [
            record("--span", "request", "-p", of.pid, name=name).ready()
            for name, of in (("backend", behind), ("front", before))
        ]
        ask(client, "200 4 GET /users/17?ms=5 0")
        ask(client, "20 2 POST /upload?ms=0 200000")
        ask(client, "20 2 GET /large/?ms=0 0")
        for recorder in recorders:
            recorder.interrupt().clean()
    names = Counter({"GET /users/{id}": 200, "POST /upload": 20, "GET /large/": 20})
    assert ledger.count_by_span(folder / "front") == dict(names)
    assert sum(ledger.count_by_span(folder / "backend").values()) == names.total()
    for name in ("front", "backend"):
        ledger.check_books(folder / name)
        nothing_missed(folder / name)
    waited = ledger.query(
        folder / "front",
        "SELECT count(*), count(*) FILTER (downstream_ns > 3.9e6), "
        f"count(*) FILTER (downstream_by = '127.0.0.1:{backend_port}') "
        "FROM spans WHERE span = 'GET /users/{id}'",
    )
    # Where the loop received two requests before it went on with one, whose call it was is a guess.
    assert waited[0][0] == 200
    assert min(waited[0][1:]) >= 190, waited
    explained = ledger.explain(folder / "front", options=("--through", str(folder / "backend")))
    every = explained["through"]["every"]
    assert every["joined"] >= 0.99 * every["asked"] >= 0.94 * 200, every
