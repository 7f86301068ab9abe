"""The lab's HTTP server in Java."""

from __future__ import annotations

import os
from typing import ClassVar
from urllib.request import urlopen

from proof.machine import PROGRAMS, serves
from proof.ports import free_port
from proof.server import Server, offer


class JvmHttp(Server):
    """The lab's HTTP server in Java, a thread for each connection, with plants inside."""

    title = "JVM HTTP"
    #: For the compilers of the JVM to be done.
    warm_up_s = 6.0
    inside: ClassVar = ("gc", "lock", "pages", "thp", "fsync")

    def start(self) -> None:
        self.port = free_port()
        # malloc's own threshold would rise at the first free, and memory would no longer be fresh.
        environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
        if self.fault == "thp":
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
        # As much room for young objects as about thirty requests fill that litter.
        command = ["java", "-XX:+UseSerialGC", "-Xms96m", "-Xmx96m", "-Xmn4m"]
        command += ["-XX:+AlwaysPreTouch", "-XX:TieredStopAtLevel=1", "-cp", PROGRAMS / "java"]
        self.run([*command, "HttpBench", self.port, self.folder, self.size], env=environment)
        serves(self.process, self.port)

    def load(self, seconds: float) -> list[object]:
        options = ("--rate", 1000, "--connections", self.connections)
        return offer("http", f"http://127.0.0.1:{self.port}/", seconds, *options)

    def strike(self) -> None:
        self.ask(self.fault)

    def rest(self) -> None:
        self.ask("reuse" if self.fault == "gc" else "none")

    def ask(self, plant: str) -> None:
        """Tells the server what to plant."""
        with urlopen(f"http://127.0.0.1:{self.port}/plant/{plant}", timeout=10) as answer:
            answer.read()
