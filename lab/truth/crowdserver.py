"""An HTTP server on one thread for thousands of connections, pipelining and half-closed sockets.

usage: crowdserver.py PORT

It answers each request with a send of its own, in order. A path that begins with `/late` is
answered after the client has closed its side; one that begins with `/never` gets no answer, and its
connection is closed. At its end (SIGTERM) it prints how many requests it received as JSON.
"""

from __future__ import annotations

import json
import resource
import selectors
import signal
import socket
import sys

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"
END = b"\r\n\r\n"


class Client:
    """A connection."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.data = b""
        self.late = 0

    def receive(self) -> bool:
        """Answers what came; whether the connection goes on."""
        try:
            part = self.socket.recv(65536)
        except ConnectionError:
            return False
        if not part:
            for _ in range(self.late):
                self.socket.send(ANSWER)
            return False
        self.data += part
        *heads, self.data = self.data.split(END)
        for head in heads:
            COUNTS["requests"] += 1
            path = head.split(b" ")[1]
            if path.startswith(b"/never"):
                return False
            if path.startswith(b"/late"):
                self.late += 1
            else:
                self.socket.send(ANSWER)
        return True


COUNTS = {"requests": 0, "connections": 0}


def main(port: int) -> None:
    """Serves until SIGTERM."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    waking, woken = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())
    signal.signal(signal.SIGTERM, lambda *_: None)
    listening = socket.create_server(("127.0.0.1", port), backlog=4096)
    with selectors.DefaultSelector() as selector:
        selector.register(listening, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    print(json.dumps(COUNTS))
                    return
                if key.fileobj is listening:
                    accepted, _ = listening.accept()
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    COUNTS["connections"] += 1
                    selector.register(accepted, selectors.EVENT_READ, Client(accepted))
                elif not key.data.receive():
                    selector.unregister(key.fileobj)
                    key.data.socket.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
