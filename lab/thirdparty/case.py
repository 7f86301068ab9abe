"""What a case is: a server, whom to record of it, and the requests of its clients."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from proof.machine import ProofError, end, folder, serves
from proof.ports import free_port

from thirdparty import client
from thirdparty.client import Client

#: Connections that are kept from request to request; and one for each request.
KEPT, FRESH = "keep-alive", "short"


class Case(ABC):
    """A running server; what belongs to it is ended when its block is left."""

    #: As the table calls it.
    title: ClassVar[str]
    modes: ClassVar[tuple[str, ...]] = (KEPT, FRESH)
    #: The load of each kind of request, by its path: requests a second, all connections together.
    rates: ClassVar[dict[str, float]] = {"/": 300}
    connections: ClassVar[int] = 16
    #: What is compiled or filled first, in seconds of load.
    warm_up_s: ClassVar[float] = 1.0

    def __init__(self, first: bool = False) -> None:
        """`first`: before all ordinary threads of this machine, where that is allowed."""
        self.first = client.BEFORE_OTHERS if first else ()
        self.stack = ExitStack()
        self.port = free_port()
        self.process: subprocess.Popen

    def __enter__(self) -> Case:
        with self.stack:
            self.folder = self.stack.enter_context(folder())
            self.start()
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None:
        """Starts the server and waits until it serves; raises `built.Lacking` where it can't."""

    @property
    def pids(self) -> list[int]:
        """Whom to record."""
        return [self.process.pid]

    def load(self, mode: str, seconds: float) -> Client:
        """Offers the case's load and returns what its clients saw."""
        fresh = ("--fresh",) if mode == FRESH else ()
        loads = {
            path: client.offer(
                *("http", f"http://127.0.0.1:{self.port}{path}", seconds, "--rate", rate),
                *("--connections", self.connections, "--seed", number, *fresh),
            )
            for number, (path, rate) in enumerate(self.rates.items(), 1)
        }
        return client.run(loads, seconds)

    def run(self, *command: object, port: int = 0, **options: object) -> subprocess.Popen:
        """Starts a program of the case, with its output in a file, and waits until it serves."""
        log = self.stack.enter_context((self.folder / f"log-{port or self.port}").open("w+b"))
        options = {"stdout": log, "stderr": log, "env": dict(os.environ)} | options
        words = [*self.first, "setpriv", "--pdeathsig=TERM", *(str(word) for word in command)]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)
        self.stack.callback(end, process)
        try:
            serves(process, port or self.port)
        except ProofError as error:
            said = Path(log.name).read_text(errors="replace").strip()
            raise ProofError(f"{error}: {said[-500:]}") from None
        return process
