"""Ports of the loopback interface."""

from __future__ import annotations

import socket

#: Bound, and never listening: so the kernel gives their ports to nobody who asks for any.
_HELD: list[socket.socket] = []


def free_port() -> int:
    """One that a server of ours can take, now or later, and that nobody else is given meanwhile.

    Two sockets may have one port as long as both say so (SO_REUSEADDR) and only one listens. All
    servers say so, as they could not be restarted else.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return held.getsockname()[1]


def answers(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody serves it."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
