"""An HTTP server on one event loop (asyncio's streams) that asks a backend for some requests.

usage: loopserver.py PORT BACKEND_PORT

At its end (SIGTERM) it prints the truth of each request as a line of JSON: how long the loop
worked for it, when another server had it, and when its answer was sent. The loop's own work before
a callback counts as the callback's.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import time
from asyncio import events
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
now = time.monotonic_ns
SCHEDSTAT = os.open("/proc/thread-self/schedstat", os.O_RDONLY)


def working() -> int:
    """The time, less what this thread has waited for a CPU."""
    before, waited = b"", os.pread(SCHEDSTAT, 96, 0).split()[1]
    while before != waited:  # it lost no CPU between the two clocks
        at = now()
        before, waited = waited, os.pread(SCHEDSTAT, 96, 0).split()[1]
    return at - int(waited)


@dataclass
class Truth:
    """What really happened to a request."""

    id: str = ""
    sending: int = 0
    sent: int = 0
    working: int = 0
    downstream: list[tuple[int, int]] = field(default_factory=list)
    asleep: list[tuple[int, int]] = field(default_factory=list)


class Book:
    """Who has the loop, and since when."""

    def __init__(self) -> None:
        self.owner: int | None = None
        self.free = 0
        #: What each connection's open request has had.
        self.spent: dict[int, int] = defaultdict(int)
        self.truths: list[Truth] = []

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has every callback of the loop written down."""
        run = events.Handle._run

        def run_and_note(handle: events.Handle) -> None:
            self.owner = None
            run(handle)
            end = working()
            if self.owner is not None:
                self.spent[self.owner] += end - self.free
            self.free = end

        events.Handle._run = run_and_note  # type: ignore[method-assign]
        selector: Any = loop._selector  # type: ignore[attr-defined]
        select = selector.select

        def select_and_note(timeout: float | None = None) -> Any:  # noqa: ANN401
            before = time.thread_time_ns()
            found = select(timeout)
            if timeout is None or timeout > 0:
                # What it took to come back from the wait is for what it waited for.
                self.free = working() - (time.thread_time_ns() - before)
            return found

        selector.select = select_and_note

    def cut(self) -> int:
        """Ends the open request of the connection that has the loop; what it has had."""
        end = working()
        assert self.owner is not None
        spent = self.spent.pop(self.owner, 0) + end - self.free
        self.free = end
        return spent


BOOK = Book()


class Marking(asyncio.StreamReader):
    """A reader that says whose data came."""

    def __init__(self) -> None:
        super().__init__(limit=1 << 16, loop=asyncio.get_running_loop())
        self.connection: int | None = None

    def feed_data(self, data: bytes) -> None:
        """What the transport calls when it has received."""
        BOOK.owner = self.connection
        super().feed_data(data)


async def to_backend(port: int) -> tuple[Marking, asyncio.StreamWriter]:
    """A new connection to the backend."""
    reader = Marking()
    loop = asyncio.get_running_loop()
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, "127.0.0.1", port)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


def spin(us: int) -> None:
    """Keeps the loop busy."""
    until = now() + us * 1000
    while now() < until:
        pass


class Server:
    """Idle connections to the backend, and the requests that use them."""

    def __init__(self, backend: int) -> None:
        self.backend = backend
        self.idle: list[tuple[Marking, asyncio.StreamWriter]] = []
        self.connections = 0

    async def ask(self, truth: Truth, connection: int, us: int) -> None:
        """Asks the backend, which takes so long."""
        if not self.idle:
            self.idle.append(await to_backend(self.backend))
            BOOK.owner = connection
        reader, writer = self.idle.pop()
        reader.connection = connection
        writer.write(f"GET /ask?ask={us} HTTP/1.1\r\n\r\n".encode())
        sent = now()
        head = await reader.readuntil(b"\r\n\r\n")
        BOOK.owner = connection
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])  # type: ignore[index]
        answered = int(await reader.readexactly(length))
        BOOK.owner = connection
        truth.downstream.append((sent, answered))
        self.idle.append((reader, writer))

    async def connected(self, reader: Marking, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        self.connections += 1
        connection = reader.connection = self.connections
        while True:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            BOOK.owner = connection
            target = head.split(b" ")[1].decode()
            numbers = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", target)}
            truth = Truth(id=target.split("?")[0].rsplit("/", 1)[1])
            spin(numbers.get("work", 0))
            if numbers.get("ask"):
                await self.ask(truth, connection, numbers["ask"])
            if numbers.get("sleep"):
                since = now()
                await asyncio.sleep(numbers["sleep"] / 1e6)
                BOOK.owner = connection
                truth.asleep.append((since, since + numbers["sleep"] * 1000))
            spin(numbers.get("after", 0))
            truth.working = BOOK.cut()
            truth.sending = now()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
            truth.sent = now()
            BOOK.cut()
            BOOK.truths.append(truth)
        writer.close()


async def main(port: int, backend: int) -> None:
    """Serves until SIGTERM."""
    loop = asyncio.get_running_loop()
    BOOK.watch(loop)
    server = Server(backend)

    def accepted() -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(Marking(), server.connected, loop=loop)

    listening = await loop.create_server(accepted, "127.0.0.1", port, backlog=512)
    ends = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ends.set)
    async with listening:
        await ends.wait()
    for truth in BOOK.truths:
        print(json.dumps(vars(truth)))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
