"""A chat server: `chatserver.py PORT`. It answers each line, some with parts that timers send.

- `say …`: is sent to all other clients as it is, and then answered with `ok`.
- `got it` and `ACK`: have no answer.
- `slow`: is answered with `part`, three times, PAUSE_S apart.
"""

from __future__ import annotations

import asyncio
import sys

#: Between two parts of a slow answer.
PAUSE_S = 0.03


async def serve(port: int) -> None:
    """Serves until the end."""
    members: list[asyncio.StreamWriter] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        members.append(writer)
        while line := await reader.readline():
            if line in (b"got it\n", b"ACK\n"):
                continue
            if line == b"slow\n":
                for pause in (0, PAUSE_S, PAUSE_S):
                    await asyncio.sleep(pause)
                    writer.write(b"part\n")
                continue
            for member in members:
                if member is not writer:
                    member.write(line)
            writer.write(b"ok\n")
        members.remove(writer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
