"""What a server pushes to its clients is no part of the answers that it sent there before."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from proof.ports import free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder
from rig.waiting import until
from truth.chatserver import PAUSE_S

pytestmark = pytest.mark.measures

SERVER = Path(installed.LAB.parent.parent) / "lab" / "truth" / "chatserver.py"
CLIENTS, ROUNDS = 4, 20
LONGEST_S = 10
#: Between two requests of one client: the others push in this time.
THINKS_S = 0.02
#: By how much both clocks may differ.
OFF_NS = 1_000_000

#: What to send, the lines of which an answer consists, and how many it has.
Recorded = Callable[[bytes, bytes, int], list[int]]


class Client:
    """A connection, with the times (`time.time_ns`) before each request and after its answer."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S)
        self.asked: list[tuple[int, int]] = []
        self.lines = self.socket.makefile("rb")

    def ask(self, line: bytes, ends: bytes, parts: int) -> None:
        """Sends a line, and waits until that many lines of its answer have come in."""
        before = time.time_ns()
        self.socket.sendall(line)
        while parts:
            parts -= self.lines.readline() == ends
        self.asked.append((before, time.time_ns()))
        time.sleep(THINKS_S)

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def accepts(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=LONGEST_S).close()
    except OSError:
        return False
    return True


@pytest.fixture
def server() -> Iterator[tuple[Started, int]]:
    port = free_port()
    with Started([*favoured(), sys.executable, SERVER, port]) as started:
        until(lambda: accepts(port) or not started.runs, "the server accepts")
        assert started.runs, started.wait()
        yield started, port


@pytest.fixture
def recorded(
    record: Callable[..., Recorder], folder: Path, server: tuple[Started, int]
) -> Recorded:
    """Records CLIENTS that ask ROUNDS times each, and returns how long each span is."""

    def run(line: bytes, ends: bytes, parts: int) -> list[int]:
        started, port = server
        recorder = record("-p", started.pid).ready()
        clients = [Client(port) for _ in range(CLIENTS)]
        for client in clients:  # one after the other shows that the server pushes
            client.ask(line, ends, parts)

        def asks(client: Client) -> None:
            for _ in range(1, ROUNDS):
                client.ask(line, ends, parts)

        threads = [threading.Thread(target=asks, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorder.interrupt().clean()
        for client in clients:
            client.close()
        ledger.check_books(folder / "ledger")
        asked = [asked for client in clients for asked in client.asked]
        spans = ledger.query(folder / "ledger", "SELECT start_ns, start_ns + wall_ns FROM spans")
        assert len(spans) == len(asked) == CLIENTS * ROUNDS
        check(spans, asked)
        return [end - start for start, end in spans]

    return run


def check(spans: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    """No request begins before a client sent it, or ends after a client had its answer."""
    starts, ends = (sorted(times) for times in zip(*spans, strict=True))
    before, after = (sorted(times) for times in zip(*asked, strict=True))
    for start, earliest in zip(starts, before, strict=True):
        assert start > earliest - OFF_NS, (start - earliest, spans)
    for end, latest in zip(ends, after, strict=True):
        assert end < latest + OFF_NS, (end - latest, spans)


def test_a_message_to_all_is_no_part_of_other_answers(recorded: Recorded) -> None:
    walls = recorded(b"say hello\n", b"ok\n", 1)
    assert sorted(walls)[len(walls) // 2] < THINKS_S * 1e9, walls


def test_an_answer_that_timers_send_in_parts_is_whole(recorded: Recorded) -> None:
    walls = recorded(b"slow\n", b"part\n", 3)
    assert min(walls) > 2 * PAUSE_S * 1e9 - OFF_NS, walls


@pytest.mark.parametrize(
    ("confirms", "is_older"),
    [
        pytest.param(b"got it\n", False, id="of the recording"),
        # What these bytes of STOMP mean is known without its first message.
        pytest.param(b"ACK\n", True, id="older"),
    ],
)
def test_nobody_answers_a_client_that_confirms_messages(
    record: Callable[..., Recorder],
    folder: Path,
    server: tuple[Started, int],
    confirms: bytes,
    is_older: bool,
) -> None:
    """The next message looks like the answer, until it is known what the server does."""
    started, port = server
    recorder = None if is_older else record("-p", started.pid).ready()
    listener, speaker = Client(port), Client(port)
    listener.ask(b"say hello\n", b"ok\n", 1)
    recorder = recorder or record("-p", started.pid).ready()
    for _ in range(100):
        speaker.ask(b"say hello\n", b"ok\n", 1)
        assert listener.lines.readline() == b"say hello\n"
        listener.socket.sendall(confirms)
        time.sleep(THINKS_S)  # not together with what the other says next
    recorder.interrupt().clean()
    listener.close()
    speaker.close()
    ledger.check_books(folder / "ledger")
    asked = speaker.asked[50:]
    earliest = asked[0][0] - OFF_NS
    query = f"SELECT start_ns, start_ns + wall_ns FROM spans WHERE start_ns > {earliest}"
    spans = ledger.query(folder / "ledger", query)
    assert len(spans) == len(asked)
    check(spans, asked)
