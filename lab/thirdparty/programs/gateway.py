"""An HTTP server on asyncio that asks a backend, on connections that it keeps, for each answer.

usage: gateway.py PORT BACKEND_PORT
"""

from __future__ import annotations

import asyncio
import sys

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def head(reader: asyncio.StreamReader) -> list[str]:
    """The lines of a request or of an answer up to the empty one; none at the end."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return []
    return text.decode("latin-1").split("\r\n")


class Gateway:
    """Idle connections to the backend, and the requests that use them."""

    def __init__(self, backend: int) -> None:
        self.backend = backend
        self.idle: list[Streams] = []

    async def ask(self, path: str) -> bytes:
        """The backend's answer to a request."""
        reader, writer = (
            self.idle.pop()
            if self.idle
            else await asyncio.open_connection("127.0.0.1", self.backend)
        )
        writer.write(f"GET {path} HTTP/1.1\r\nHost: backend\r\n\r\n".encode())
        length = 0
        for line in await head(reader):
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                length = int(value)
        body = await reader.readexactly(length)
        self.idle.append((reader, writer))
        return body

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client's connection."""
        while lines := await head(reader):
            body = await self.ask(lines[0].split(" ")[1])
            ends = "Connection: close" in lines
            close = "Connection: close\r\n" if ends else ""
            text = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{close}\r\n"
            writer.write(text.encode() + body)
            await writer.drain()
            if ends:
                break
        writer.close()


async def main(port: int, backend: int) -> None:
    """Serves for ever."""
    server = await asyncio.start_server(Gateway(backend).serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
