"""What a thread with a request in hand waits for is the request's wait, and not `unknown`."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from proof.ports import answers, free_port
from rig import installed, ledger
from rig.processes import Started, favoured
from rig.recorder import Recorder
from rig.waiting import until
from truth.waitserver import REPORT_S, WAIT_S

pytestmark = pytest.mark.measures

TRUTH = Path(installed.LAB.parent.parent) / "lab" / "truth"
SERVER, OFFLOADS = TRUTH / "waitserver.py", TRUTH / "offloadserver.py"
#: What requests of a path wait for.
WAITS = {
    "/pieces": ("network",),
    "/timeout": ("sleep",),
    "/child": ("network", "sleep"),
    "/parts": ("sleep",),
    "/backend": ("downstream",),
}
EACH = 30
#: After so long a thread that waits for its turn asks for it (sys.getswitchinterval).
TURN_S = 0.005


def whole(answer: bytes) -> int:
    """How long an answer is, once its head is there."""
    head = answer.split(b"\r\n\r\n")[0]
    return len(head) + 4 + int(head.split(b"Content-Length: ")[1])


def ask(connection: socket.socket, path: str) -> None:
    """Asks, in two pieces where the path says so, and takes the whole answer."""
    text = f"GET {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
    first = len(text) // 2 if path == "/pieces" else len(text)
    connection.sendall(text[:first])
    if first < len(text):
        time.sleep(WAIT_S)
        connection.sendall(text[first:])
    answer = b""
    while b"\r\n\r\n" not in answer or len(answer) < whole(answer):
        more = connection.recv(4096)
        assert more, answer
        answer += more


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def test_each_wait_is_found_as_what_it_is(record: Callable[..., Recorder], folder: Path) -> None:
    port = free_port()
    with Started([*favoured(), sys.executable, SERVER, port, free_port()]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        recorder = record("-p", server.pid).ready()
        with connect(port) as connection:
            for _ in range(EACH):
                for path in WAITS:
                    ask(connection, path)
        recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    for path, causes in WAITS.items():
        ((count, waited_ns, unknown_ns, stopped_ns),) = ledger.query(
            folder / "ledger",
            f"SELECT count(*), median({ledger.sum_of(causes)}), median(unknown_ns), "
            f"max(stopped_ns) FROM spans WHERE span = 'GET {path}' AND wall_ns > {WAIT_S * 8e8}",
        )
        found = f"{path}: {count} rows, {waited_ns} ns, unknown {unknown_ns}, stopped {stopped_ns}"
        assert count == EACH, found
        assert waited_ns > WAIT_S * 8e8, found
        assert unknown_ns < WAIT_S * 2e8, found
        assert stopped_ns == 0, found


def test_a_turn_in_the_interpreter_is_a_lock_and_no_handing_over(
    record: Callable[..., Recorder], folder: Path
) -> None:
    port = free_port()
    with Started([*favoured(), sys.executable, SERVER, port, free_port()]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        recorder = record("-p", server.pid).ready()
        with connect(port) as reporting, connect(port) as one, connect(port) as other:
            for _ in range(EACH):
                ask(reporting, "/report")
                ask(one, "/turn")
                ask(other, "/turn")
                time.sleep(REPORT_S)
        recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    slow = ledger.query(
        folder / "ledger",
        "SELECT wall_ns - runqueue_ns - preempted_ns, lock_ns, lock_by FROM spans "
        f"WHERE span = 'GET /turn' AND wall_ns > {TURN_S * 9e8} ORDER BY start_ns",
    )
    slow = slow[4:]  # the recorder learns a moment later where the interpreter's lock is
    assert len(slow) > EACH / 2, slow
    waits = [by for wall, lock, by in slow if lock > 0.8 * wall]
    assert len(waits) > 0.9 * len(slow), slow
    assert sum((by or "").endswith("/report (GIL)") for by in waits) > 0.8 * len(waits), slow


def ask_until(stop: threading.Event, port: int, pause_s: float) -> None:
    with connect(port) as connection:
        while not stop.wait(pause_s):
            ask(connection, "/now")


@pytest.mark.parametrize(
    ("path", "pause_s", "least", "waits"),
    [
        # Now and then the loop sees a result before any thread has told it of one.
        ("/sleep", 0.001, 0.8, ()),
        # And a timer that has run out while the loop did something else.
        ("/timer", 0.01, 0.6, ()),
        ("/timer", 0.01, 0.6, ("select",)),
        ("/timer", 0.01, 0.6, ("poll",)),
        # Of this kind only those that end a wait of the loop are seen.
        ("/timerfd", 0.01, 0.6, ()),
    ],
)
def test_a_request_sleeps_while_its_loop_works_for_others(
    path: str,
    pause_s: float,
    least: float,
    waits: tuple[str, ...],
    record: Callable[..., Recorder],
    folder: Path,
) -> None:
    port, stop = free_port(), threading.Event()
    with Started([*favoured(), sys.executable, OFFLOADS, port, *waits]) as server:
        until(lambda: answers(port) or not server.runs, "the server serves its port")
        assert server.runs, server.wait()
        others = [threading.Thread(target=ask_until, args=(stop, port, pause_s)) for _ in range(3)]
        with connect(port) as connection:
            for other in others:
                other.start()
            try:
                for _ in range(EACH):  # until it has all of its threads
                    ask(connection, path)
                recorder = record("-p", server.pid).ready()
                for _ in range(2 * EACH):
                    ask(connection, path)
            finally:
                stop.set()
                for other in others:
                    other.join()
        recorder.interrupt().clean()
    ledger.check_books(folder / "ledger")
    rows = ledger.query(
        folder / "ledger",
        "SELECT wall_ns - runqueue_ns - preempted_ns, sleep_ns, sleep_by, unknown_ns FROM spans "
        f"WHERE span = 'GET {path}' ORDER BY start_ns",
    )
    assert len(rows) == 2 * EACH, rows
    slept = [
        by for wall, sleep, by, unknown in rows if sleep > WAIT_S * 9e8 and unknown < wall / 10
    ]
    assert len(slept) > least * len(rows), rows
    assert slept.count("(interrupt)") > 0.8 * len(slept), slept
