"""A small server that writes down each POST that it executes: `guard_replica.py PORT LOG`.

A GET is answered with `ok`, and a POST with its body. Before it answers a POST, it appends the body
to LOG with one write, which a SIGKILL does not undo.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys

LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
LOG = -1


class Connection(asyncio.Protocol):
    """One of guard's connections."""

    def __init__(self) -> None:
        self.left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.left += data
        while True:
            head, end, rest = self.left.partition(b"\r\n\r\n")
            found = LENGTH.search(head)
            length = int(found[1]) if found else 0
            if not end or len(rest) < length:
                return
            body, self.left = rest[:length], rest[length:]
            if head.startswith(b"POST "):
                os.write(LOG, body + b"\n")
            else:
                body = b"ok"
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
            self.transport.write(answer % (len(body), body))


async def serve(port: int) -> None:
    """Until it is killed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    LOG = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    asyncio.run(serve(int(sys.argv[1])))
