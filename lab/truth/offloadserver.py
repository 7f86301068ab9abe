"""An HTTP server on one event loop that has threads do its work (asyncio.to_thread).

    offloadserver.py PORT [select|poll]

The second word is how the loop waits, instead of by epoll.

A thread sleeps WAIT_S for paths that end with `sleep`, and does nothing for others. For paths that
end with `timer` the loop itself sets one. For those that end with `timerfd` it waits for one of the
kernel's as it waits for sockets.
"""

import asyncio
import ctypes
import os
import selectors
import struct
import sys
import time

WAIT_S = 0.006
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def work(path: bytes) -> None:
    if path.endswith(b"sleep"):
        time.sleep(WAIT_S)


async def timerfd() -> None:
    libc, loop = ctypes.CDLL(None), asyncio.get_running_loop()
    timer = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
    once = struct.pack("4q", 0, 0, 0, int(WAIT_S * 1e9))
    libc.timerfd_settime(timer, 0, once, None)
    over = loop.create_future()
    loop.add_reader(timer, over.set_result, None)
    await over
    loop.remove_reader(timer)
    os.close(timer)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1]
            if path.endswith(b"timer"):
                await asyncio.sleep(WAIT_S)
            elif path.endswith(b"timerfd"):
                await timerfd()
            else:
                await asyncio.to_thread(work, path)
            writer.write(ANSWER)
    except asyncio.IncompleteReadError:
        writer.close()


async def main() -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()


if __name__ == "__main__":
    kinds = {"select": selectors.SelectSelector, "poll": selectors.PollSelector}
    kind = kinds.get(sys.argv[2]) if sys.argv[2:] else selectors.DefaultSelector
    asyncio.SelectorEventLoop(kind()).run_until_complete(main())
