"""What a server of the proof is: started alone on its CPU, under load, with its fault planted."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from typing import ClassVar

from proof import faults
from proof.machine import (
    LAB,
    SERVER_CPU,
    ProofError,
    children,
    cpu_ns,
    folder,
    from_memory,
    running,
)

NO_JVM = "it has no garbage collector"


class Server(ABC):
    """A running server, ended with everything it needed when its block is left."""

    #: As the table calls it.
    title: ClassVar[str]
    #: The source of its spans.
    source: ClassVar[str] = "request"
    #: Faults that do not apply, and why.
    lacks: ClassVar[dict[str, str]] = {}
    #: Faults that the server plants in its own requests when told to.
    inside: ClassVar[Collection[str]] = ()
    #: How many connections the load has. Requests that come together queue for the server, and
    #: where each has a thread of its own, these wait for each other's CPU, fault or not: causes
    #: that explain rightly names, and that a fix of `queue` or `runqueue` takes away with the
    #: fault's. With one connection they wait in the client.
    connections: ClassVar[int] = 1
    #: How long it takes to be itself, in seconds: what is compiled or filled first.
    warm_up_s: ClassVar[float] = 1.0

    def __init__(self, fault: str, size: int = 1) -> None:
        self.fault, self.size = fault, size
        self.stack = ExitStack()
        self.process: subprocess.Popen

    def __enter__(self) -> Server:
        with self.stack:
            self.folder = self.stack.enter_context(folder())
            self.start()
            self.stack = self.stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    @abstractmethod
    def start(self) -> None:
        """Starts it on its CPU and waits until it serves."""

    @property
    def pid(self) -> int:
        """Whom to record."""
        return self.process.pid

    def victims(self) -> list[int]:
        """The processes that do the work."""
        return [self.pid]

    @abstractmethod
    def load(self, seconds: float) -> list[object] | None:
        """The command that offers load; None where the program makes its own."""

    def planted(self) -> AbstractContextManager[object]:
        """The cell's fault, for as long as the block runs."""
        if self.fault in self.inside:
            return self.striking()
        options = self.quota if self.fault == "quota" else ()
        return faults.from_outside(self.fault, self.size, self.victims(), *options)

    @contextmanager
    def striking(self) -> Iterator[None]:
        """The server's own requests meet the fault; the disk is busy where it is about that."""
        busy = faults.busy_disk(self.folder, self.size)
        with busy if self.fault == "fsync" else nullcontext():
            self.strike()
            try:
                yield
            finally:
                self.rest()

    def strike(self) -> None:
        """Has the server plant the fault that is `inside` of it, from now on."""
        raise self.no_plant()

    def rest(self) -> None:
        """Has it plant no more."""
        raise self.no_plant()

    def no_plant(self) -> ProofError:
        """What a server says that lists a fault as `inside` and can't plant it."""
        return ProofError(f"{self.title} has no way to plant {self.fault} in its own requests")

    @cached_property
    def quota(self) -> tuple[object, ...]:
        """The options of a quota that is too small in each period, by what the server uses."""
        before = sum(cpu_ns(pid) for pid in self.workers())
        time.sleep(1)
        used = (sum(cpu_ns(pid) for pid in self.workers()) - before) / 1e9
        return faults.quota(used, self.size)

    def workers(self) -> list[int]:
        """The processes whose CPU time a quota is about."""
        return [self.pid, *children(self.pid)]

    def run(self, command: list[object], **options: object) -> None:
        """Starts the server's own process."""
        log = self.stack.enter_context((self.folder / "log").open("wb"))
        options = {"stdout": log, "stderr": log} | options
        self.process = self.stack.enter_context(running(command, on=(SERVER_CPU,), **options))

    def program(self, name: str) -> tuple[object, dict[str, str]]:
        """The program and its environment: where pages are to be taken away, from memory."""
        if self.fault == "pages":
            return from_memory(name, self.stack.enter_context(folder("/dev/shm")))
        return shutil.which(name) or f"/usr/sbin/{name}", dict(os.environ)


def offer(kind: str, target: str, seconds: float, *options: object) -> list[object]:
    """The lab's load: an open loop, at the same arrival times in every run."""
    length = ("--duration", f"{seconds:g}s", "--warmup", "0s", "--json")
    return [LAB, "load", f"--{kind}", target, *length, *options]
