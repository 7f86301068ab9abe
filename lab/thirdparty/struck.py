"""Servers in which a fault is planted from beside their load."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from proof.machine import NOBODY, end

from thirdparty import built, client, groups
from thirdparty.case import FRESH, KEPT, Case
from thirdparty.client import Client
from thirdparty.own import Echo, RedisPipelined
from thirdparty.postgres import PostgresRowLock


class SerialServer(Case):
    """Python's HTTP server with one thread, which has something else to do now and then."""

    title = "HTTPServer, one thread"
    modes: ClassVar = (FRESH,)
    rates: ClassVar = {"/": 300}
    connections: ClassVar = 64

    def start(self) -> None:
        self.process = self.run(sys.executable, built.SOURCES / "serial.py", self.port)


class RedisSlowCommand(RedisPipelined):
    """Redis with one client whose command keeps the one thread for 30 ms, three times a second."""

    title = "redis, one slow client"
    RATE = 1000
    SCRIPT = "local n = 0 for i = 1, ARGV[1] do n = n + i % 7 end return n"

    def load(self, mode: str, seconds: float) -> Client:
        options = ("--rate", self.RATE, "--connections", 8, "--keys", 1)
        words = client.offer("redis", f"127.0.0.1:{self.port}", seconds, *options)
        return client.run({"get": words}, seconds)

    @contextmanager
    def striking(self) -> Iterator[None]:
        """The slow client."""
        with socket.create_connection(("127.0.0.1", self.port)) as slow:
            self.slow_client = "{}:{}".format(*slow.getsockname())
            over = threading.Event()

            def ask() -> None:
                command = resp("EVAL", self.SCRIPT, "0", "1500000")
                while not over.wait(0.3):
                    slow.sendall(command)
                    slow.recv(64)

            thread = threading.Thread(target=ask)
            thread.start()
            try:
                yield
            finally:
                over.set()
                thread.join()


def resp(*words: str) -> bytes:
    """A command as Redis reads it."""
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()


class PostgresKept(PostgresRowLock):
    """PostgreSQL with a session that keeps a row for 10 ms now and then, asleep in its client."""

    title = "PostgreSQL, a kept row"
    SESSIONS: ClassVar = 1
    STATEMENT: ClassVar = "UPDATE one SET n = n + 1 WHERE id = 1;\n"
    RATE: ClassVar = 300
    KEEP: ClassVar = (
        "BEGIN;\nUPDATE one SET n = n + 1 WHERE id = 1;\n\\sleep 10 ms\nCOMMIT;\n\\sleep 90 ms\n"
    )

    @contextmanager
    def striking(self) -> Iterator[None]:
        """The session that keeps the row."""
        script = self.folder / "keep"
        script.write_text(self.KEEP)
        words = (*NOBODY, self.bin / "pgbench", "-n", "-T", 600, "-f", script, *self.address)
        command = [str(word) for word in (*words, "postgres")]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        keeper = subprocess.Popen(command, cwd=self.folder, **silent)
        try:
            yield
        finally:
            end(keeper, signal.SIGINT)


class SlowlyAskedEcho(Echo):
    """The empty server at a rate that it keeps up with when each system call of it stops twice.

    On a slow machine too: a stop and its end take up to a millisecond there.
    """

    rates: ClassVar = {"/": 100}


class RegisteredRedis(RedisPipelined):
    """Redis, registered for other processes' membarrier(2); each request asks for many keys."""

    title = "redis, membarrier"
    RATE = 1000

    def start(self) -> None:
        library = {"LD_PRELOAD": str(built.membarrier_library())}
        command = ["taskset", "-c", 1, built.path("redis-server"), "--bind", "127.0.0.1"]
        where = ("--port", self.port, "--save", "", "--dir", self.folder)
        self.process = self.run(*command, *where, env=os.environ | library)

    def load(self, mode: str, seconds: float) -> Client:
        options = ("--rate", self.RATE, "--connections", 1, "--keys", 1000, "--batch", 1000)
        words = client.offer("redis", f"127.0.0.1:{self.port}", seconds, *options)
        return client.run({"mget": words}, seconds)


class FreshMemory(Echo):
    """The empty server, of whose requests one in fifty touches 4 MiB of fresh memory."""

    title = "fresh memory at a group's limit"
    modes: ClassVar = (KEPT,)
    rates: ClassVar = {"/": 500}
    LIMIT_MIB = 48
    FILE_MIB = 256

    def start(self) -> None:
        self.process = self.run(built.echo(), self.port, 50, 4096)

    @contextmanager
    def striking(self) -> Iterator[None]:
        """The server shares a group, which is at its limit, with a reader of a large file."""
        # Beside the sources' build: on a disk, where the pages of a file can be given up.
        built.BUILT.mkdir(parents=True, exist_ok=True)
        file = built.BUILT / f"filler-{os.getpid()}"
        program = [sys.executable, str(built.SOURCES / "filler.py"), str(file), str(self.FILE_MIB)]
        with groups.limited_memory(self.pids, self.LIMIT_MIB) as group:
            filler = subprocess.Popen(program)
            try:
                (group / "cgroup.procs").write_text(str(filler.pid))
                yield
            finally:
                end(filler)
                file.unlink(missing_ok=True)


class FileLock(Case):
    """Threads of Python that need the lock of a file."""

    title = "lock of a file"

    def start(self) -> None:
        (self.folder / "locked").touch()
        program = built.SOURCES / "filelock.py"
        self.process = self.run(sys.executable, program, self.port, self.folder / "locked")
