"""A client that sends requests at random times, each with a name of its own and the work to do.

One thread serves all connections, so that only the kernel comes between the clock and a send.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from dataclasses import dataclass

LETTERS = "abcdefghijklmnopqrstuvwxyz"
now = time.monotonic_ns
#: Before and after the send.
Sent = tuple[int, int]


def name_of(number: int) -> str:
    """A name of letters: digits would be folded."""
    name = ""
    for _ in range(4):
        number, letter = divmod(number, len(LETTERS))
        name += LETTERS[letter]
    return name


@dataclass(frozen=True)
class Mix:
    """What requests are like: microseconds of each, of which a request gets one at random."""

    work: tuple[int, ...] = (200,)
    ask: tuple[int, ...] = (0,)
    sleep: tuple[int, ...] = (0,)
    after: tuple[int, ...] = (100,)
    #: Mean time between an answer and the next request of its connection, in microseconds.
    pause: int = 4000


class Connection:
    """One request after the other."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answer = b""

    def send(self, name: str, mix: Mix, draw: random.Random) -> Sent:
        """Sends a request."""
        query = "&".join(
            f"{key}={draw.choice(getattr(mix, key))}" for key in ("work", "ask", "sleep", "after")
        )
        text = f"GET /w/{name}?{query} HTTP/1.1\r\n\r\n".encode()
        began = now()
        self.socket.send(text)
        return began, now()

    def is_answered(self) -> bool:
        """Receives; whether the answer is whole."""
        part = self.socket.recv(4096)
        if not part:
            raise ConnectionError(f"the server has closed a connection after {self.answer!r}")
        self.answer += part
        whole = self.answer.endswith(b"done")
        if whole:
            self.answer = b""
        return whole


def warm_up(port: int, mix: Mix, connections: int, first: int) -> None:
    """Load before a recording, so that it has none of the first steps of a virtual machine."""
    load(port, mix, 300, connections, first=first)


def load(
    port: int, mix: Mix, requests: int, connections: int, seed: int = 1, first: int = 0
) -> dict[str, Sent]:
    """Sends that many requests over these connections; when each was sent, by its name. The names
    are those of the numbers from `first`."""
    began: dict[str, Sent] = {}
    draw = random.Random(seed)
    with selectors.DefaultSelector() as selector:

        def pause() -> int:
            return now() + int(draw.expovariate(1) * mix.pause * 1000)

        idle = [(pause(), Connection(port)) for _ in range(connections)]
        for _, connection in idle:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        answered = 0
        while answered < requests:
            idle.sort(key=lambda pair: pair[0])
            while idle and idle[0][0] <= now() and len(began) < requests:
                _, connection = idle.pop(0)
                name = name_of(first + len(began))
                began[name] = connection.send(name, mix, draw)
            wait = max(0, idle[0][0] - now()) / 1e9 if idle and len(began) < requests else 10
            for key, _ in selector.select(wait):
                if key.data.is_answered():
                    answered += 1
                    idle.append((pause(), key.data))
        for _, connection in idle:
            connection.socket.close()
    return began
