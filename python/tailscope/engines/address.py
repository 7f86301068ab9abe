"""An engine's address: how it is shown, and whether somebody answers there."""

from __future__ import annotations

import re
import socket
from urllib.parse import urlsplit

from tailscope.errors import MachineError, TailscopeError

#: How long an engine elsewhere may take to accept a connection, in s.
PATIENCE_S = 5.0


def shown(address: str) -> str:
    """An engine's address without the password that may be in it."""
    return re.sub(r"(//[^/@]*?):[^/@]*@", r"\1:…@", address)


def reach(address: str, port: int) -> tuple[str, int]:
    """Host and port of an engine's address, once somebody has answered there.

    Asked before the engine's own client is: those try for minutes.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or port
    except ValueError as error:
        raise TailscopeError(f"'{shown(address)}' is not an engine's address: {error}") from error
    if not host:
        raise TailscopeError(f"'{shown(address)}' is not an engine's address: it has no host")
    try:
        socket.create_connection((host, port), PATIENCE_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise MachineError(
            f"can't reach the engine at {host}:{port}: {reason}; check that it runs, or leave "
            "--engine out to analyse on this machine"
        ) from error
    return host, port
