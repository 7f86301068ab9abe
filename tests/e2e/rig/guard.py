"""A guard in front of replicas, and the clients that ask it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.ports import answers, free_port

from rig import installed
from rig.java import java
from rig.machines import Machine
from rig.processes import Started
from rig.waiting import until

SERVER = Path(__file__).parent / "replica.py"


class Replica:
    """A server that logs what it executes; it can be killed and started again on its port."""

    def __init__(
        self,
        folder: Path,
        name: str,
        machine: Machine | None = None,
        **options: Any,  # noqa: ANN401
    ) -> None:
        """`machine`: where it runs; none: here."""
        self.name, self.port, self.log = name, free_port(), folder / f"{name}.log"
        self.host = machine.address if machine else "127.0.0.1"
        self.binds = self.host
        self.under = machine.under if machine else ()
        self.options = options
        self.log.touch()
        self.start()

    def command(self) -> list[object]:
        return [sys.executable, SERVER, self.port, self.name, self.log, self.binds]

    def start(self) -> None:
        self.process = Started([*self.under, *self.command()], **self.options)
        until(lambda: answers(self.port, self.host) or not self.process.runs, f"{self.name} serves")
        assert self.process.runs, self.process.wait()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def executed(self) -> list[str]:
        return self.log.read_text().splitlines()

    def freeze(self) -> None:
        """Stops it, and waits until all its threads are."""
        os.kill(self.process.pid, signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it is stopped")

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        self.process.stop(signal.SIGKILL)

    def end(self) -> None:
        if self.process.runs:
            self.thaw()
        self.process.__exit__()


class JavaReplica(Replica):
    """A JVM, in which a full collection takes a while. It does not log."""

    def __init__(
        self,
        folder: Path,
        name: str,
        flags: tuple[str, ...] = (),
        **options: Any,  # noqa: ANN401
    ) -> None:
        self.flags = flags
        super().__init__(folder, name, **options)

    def command(self) -> list[object]:
        words = (self.port, self.name, 5000, self.binds)
        return java("tailscope.Answering", *words, options=self.flags)

    def collect(self) -> None:
        """Has it collect all garbage, and waits for the end."""
        direct = http.client.HTTPConnection(self.host, self.port, timeout=60)
        assert ask(direct, "GET", "/collect")[0] == 200
        direct.close()


@dataclass
class AtPort:
    """A replica that a test plays itself."""

    port: int

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


class Guard(Started):
    """A guard that serves."""

    def __init__(
        self,
        replicas: Sequence[Replica | Guard | AtPort],
        *options: object,
        under: Sequence[object] = (),
        after: Guard | None = None,
    ) -> None:
        """`after`: the guard of which this one takes the sockets over."""
        self.port, self.admin = (after.port, after.admin) if after else (free_port(), free_port())
        named = [word for replica in replicas for word in ("--replica", replica.address)]
        listen = ["--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin}"]
        listen += ["--take-over"] if after else []
        super().__init__([*under, installed.tailscope(), "guard", *listen, *named, *options])
        until(lambda: "listening on" in self.err or not self.runs, "the guard listens")
        assert self.runs, self.wait()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self, timeout: float = 60) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path: str = "/") -> tuple[int, str]:
        """Status and body of an answer, on a connection of its own."""
        return ask(self.connect(), "GET", path)

    def raw(self, request: bytes) -> bytes:
        """All that comes back for these bytes until the connection is closed."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as client:
            got = b""
            # It may close before it has read all.
            with suppress(OSError):
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                while part := client.recv(65536):
                    got += part
            return got

    def status(self) -> dict[str, Any]:
        command = [installed.tailscope(), "guard", "status", "--json", f"127.0.0.1:{self.admin}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def count(self, name: str) -> int:
        return self.status()["counts"][name]

    def outstanding(self) -> list[int]:
        """Requests that each replica has not answered."""
        return [replica["outstanding"] for replica in self.status()["replicas"]]


def ask(
    connection: http.client.HTTPConnection, method: str, path: str, body: str | None = None
) -> tuple[int, str]:
    """Status and body of one answer."""
    connection.request(method, path, body)
    with connection.getresponse() as answer:
        return answer.status, answer.read().decode()


#: Starts guards in front of a pair of replicas.
StartGuard = Callable[..., Guard]
