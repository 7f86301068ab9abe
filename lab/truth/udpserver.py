"""A server of datagrams: one thread and one socket for all clients.   udpserver.py PORT UPSTREAM

A datagram that begins with `w` takes it WORK_S. For any other one it asks the upstream, from a port
that it chooses itself as resolvers of DNS do. Until the answer comes it takes other datagrams.
"""

from __future__ import annotations

import random
import selectors
import socket
import sys
import time

WORK_S = 0.001
HERE = "127.0.0.1"


def with_a_port() -> socket.socket:
    """A socket at a port that the kernel did not choose."""
    while True:
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            one.bind((HERE, random.randrange(10_000, 30_000)))
        except OSError:
            one.close()  # somebody has it
        else:
            return one


class Server:
    """One server."""

    def __init__(self, port: int, upstream: int) -> None:
        self.upstream = (HERE, upstream)
        self.ready = selectors.DefaultSelector()
        self.clients = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.clients.bind((HERE, port))
        self.ready.register(self.clients, selectors.EVENT_READ, self.take)

    def take(self) -> None:
        """A request has come in."""
        asked, client = self.clients.recvfrom(2048)
        if asked.startswith(b"w"):
            until = time.perf_counter() + WORK_S
            while time.perf_counter() < until:
                pass
            self.clients.sendto(asked, client)
            return
        call = with_a_port()
        call.sendto(asked, self.upstream)

        def pass_on() -> None:
            answer = call.recv(2048)
            self.ready.unregister(call)
            call.close()
            self.clients.sendto(answer, client)

        self.ready.register(call, selectors.EVENT_READ, pass_on)

    def run(self) -> None:
        """Serves for ever."""
        while True:
            for key, _ in self.ready.select():
                key.data()


if __name__ == "__main__":
    Server(int(sys.argv[1]), int(sys.argv[2])).run()
