"""The servers that are one process without an inside: Debian's, the lab's; and the list of all."""

from __future__ import annotations

import signal
import subprocess
from typing import ClassVar

from proof.jvm import JvmHttp
from proof.machine import PROGRAMS, ProofError, listens_for, serves, until
from proof.ports import free_port
from proof.postgres import Postgres
from proof.server import NO_JVM, Server, offer

IN_PLACE = "its memory is in place once it has started: no request takes fresh memory"
ONE_THREAD = "one thread does all its work, and no lock is ever contended"
NO_DISK = "no request of it waits for a disk"


class Memcached(Server):
    """Debian's memcached, one worker; each request asks for many keys."""

    title = "memcached"
    lacks: ClassVar = {
        "gc": NO_JVM,
        "thp": IN_PLACE,
        "fsync": NO_DISK,
        "lock": "no command keeps a lock that requests need for longer than an instant",
    }

    def start(self) -> None:
        self.port = free_port()
        program, environment = self.program("memcached")
        command = [program, "-l", "127.0.0.1", "-p", self.port, "-U", 0, "-t", 1, "-u", "root"]
        # On one CPU with the worker its own maintenance is a neighbour: it made a third of the p99
        # of the cell with nothing planted (`runqueue … behind memcached/mc-lrumaint`).
        command += ["-o", "no_lru_maintainer,no_lru_crawler"]
        self.run(command, env=environment)
        serves(self.process, self.port)

    def load(self, seconds: float) -> list[object]:
        options = ("--rate", 1000, "--batch", 250, "--connections", self.connections)
        return offer("memcached", f"127.0.0.1:{self.port}", seconds, *options)


class Redis(Server):
    """Debian's Redis; each request asks for many keys."""

    title = "redis"
    inside: ClassVar = ("fsync",)
    lacks: ClassVar = {
        "gc": NO_JVM,
        "lock": ONE_THREAD,
        "thp": "it turns huge pages off for itself (`disable-thp`)",
    }

    def start(self) -> None:
        self.port = free_port()
        program, environment = self.program("redis-server")
        command = [program, "--bind", "127.0.0.1", "--port", self.port, "--save", ""]
        command += ["--dir", self.folder, "--appendonly", "yes" if self.fault == "fsync" else "no"]
        self.run([*command, "--appendfsync", "no"], env=environment)
        serves(self.process, self.port)

    def load(self, seconds: float) -> list[object]:
        options = ["--rate", 1000, "--batch", 250, "--connections", self.connections]
        if self.fault == "fsync":
            options += ["--set-ratio", 0.05]
        return offer("redis", f"127.0.0.1:{self.port}", seconds, *options)

    def strike(self) -> None:
        """Each write is on the disk before its answer."""
        self.sync("always")

    def rest(self) -> None:
        self.sync("no")

    def sync(self, when: str) -> None:
        """When writes go to the disk, told on a connection of its own."""
        command = ["redis-cli", "-p", str(self.port), "CONFIG", "SET", "appendfsync", when]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.stdout.strip() != "OK":
            raise ProofError(f"{' '.join(command)}: {done.stdout}{done.stderr}")


class Nginx(Server):
    """Debian's nginx, one process that lists a folder of many files."""

    title = "nginx"
    lacks: ClassVar = {
        "gc": NO_JVM,
        "thp": IN_PLACE,
        "lock": ONE_THREAD,
        "fsync": NO_DISK,
    }
    FILES = 80

    def start(self) -> None:
        self.port = free_port()
        (self.folder / "www").mkdir()
        for number in range(self.FILES):
            (self.folder / "www" / f"file-{number}").touch()
        (self.folder / "conf").write_text(
            f"daemon off; master_process off; error_log {self.folder}/error; "
            f"pid {self.folder}/pid; events {{}} http {{ access_log off; autoindex on; "
            f"keepalive_requests 1000000000; client_body_temp_path {self.folder}; "
            f"server {{ listen 127.0.0.1:{self.port}; root {self.folder}/www; }} }}"
        )
        program, environment = self.program("nginx")
        self.run([program, "-c", self.folder / "conf", "-p", self.folder], env=environment)
        serves(self.process, self.port)

    def load(self, seconds: float) -> list[object]:
        options = ("--rate", 1000, "--connections", self.connections)
        return offer("http", f"http://127.0.0.1:{self.port}/", seconds, *options)


class LoopBench(Server):
    """The lab's annotated programs: a loop of fixed length, in some cells with a plant inside."""

    title = "LoopBench"
    source = "sdk"
    lacks: ClassVar = {"gc": NO_JVM}
    inside: ClassVar = ("lock", "pages", "thp", "fsync")

    @property
    def program_inside(self) -> tuple[object, ...] | None:
        """Which program has the plant, with its options."""
        return {
            "lock": ("lockbench", "--threads", 1, "--hold-us", 500 * self.size),
            "pages": ("faultbench", "--pages", 256 * self.size),
            "thp": ("faultbench", "--pages", self.size, "--huge"),
            "fsync": ("fsyncbench",),
        }.get(self.fault)

    def start(self) -> None:
        program = self.program_inside
        command = [PROGRAMS / "loopbench", "--iterations", 1500000]
        if program:
            command = [PROGRAMS / program[0], *program[1:], "--every", 30, "--work-us", 200]
        if self.fault == "fsync":
            command += ["--dir", self.folder]
        # Who sleeps between spans gets the CPU back from a hog at once, and its quota too.
        rest_us = 0 if self.fault in ("hog", "quota", "two") else 100
        self.run([*command, "--seconds", 3600, "--think-us", rest_us])
        if program:
            ready = lambda: listens_for(self.process, signal.SIGUSR1)  # noqa: E731
            until(ready, f"{program[0]} has started")
            self.rest()

    def load(self, seconds: float) -> None:
        return None

    def strike(self) -> None:
        """One span in so many."""
        self.process.send_signal(signal.SIGUSR2)

    def rest(self) -> None:
        self.process.send_signal(signal.SIGUSR1)


#: In the order of the table's columns.
SERVERS: dict[str, type[Server]] = {
    "memcached": Memcached,
    "redis": Redis,
    "nginx": Nginx,
    "postgres": Postgres,
    "jvm": JvmHttp,
    "loopbench": LoopBench,
}
