"""Clients of HTTP/2, each with one connection."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rig import installed

#: A server and a client, see there.
STREAMS = Path(installed.LAB.parent.parent) / "tests" / "programs" / "streams.js"


def ask(client: subprocess.Popen[str], line: str) -> list[float]:
    """Has a client send these requests; returns how long each took, in milliseconds."""
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(line + "\n")
    client.stdin.flush()
    return json.loads(client.stdout.readline())


@contextmanager
def asking(port: int, folder: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A client; `folder`: it has a certificate if the server speaks TLS."""
    command = ["node", str(STREAMS), "ask", str(port)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True) as client:
        try:
            yield client
        finally:
            client.kill()
