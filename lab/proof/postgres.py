"""PostgreSQL under pgbench."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from proof.machine import NOBODY, ProofError, children, end, running, until
from proof.ports import free_port
from proof.server import NO_JVM, Server

#: What the load sends, about as much work as the other servers' requests: of a fault that strikes
#: in many short pieces a query for one row meets few. Where commits are to wait for the disk,
#: updates too.
SELECT = (
    "\\set aid random(1, 99000)\n"
    "SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :aid AND :aid + 300;\n"
)
UPDATE = (
    "\\set aid random(1, 100000)\n"
    "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"
)
#: Another session that keeps the table, asleep outside of the server.
KEEP = (
    "BEGIN;\nLOCK TABLE pgbench_accounts IN ACCESS EXCLUSIVE MODE;\n\\sleep 3 ms\nCOMMIT;\n"
    "\\sleep 30 ms\n"
)
#: A request that fills memory with text, so many pieces of so many kB, and gives each back. A piece
#: above malloc's threshold is fresh memory; as much in pieces below it finds the same again, and
#: costs as much else: none fits into the nearer caches. From a table, so that both are one query on
#: one connection, and told apart at any time.
FILL = (
    "SELECT sum(octet_length(repeat(repeat('x', 1000), kb + 0 * piece))) "
    "FROM plant, generate_series(1, pieces) AS piece;\n"
)
#: With huge pages malloc rounds up what it keeps to 2 MiB, so half of a piece is well below.
THRESHOLD_KB = 4_500
#: A request that visits a table of long rows, one a page of 8 kB, which nobody else reads.
VISIT = "SELECT sum(octet_length(long)) FROM plant;\n"
ROWS = 1024


class Postgres(Server):
    """Debian's PostgreSQL; pgbench sends it short queries at a rate."""

    title = "PostgreSQL"
    lacks: ClassVar = {"gc": NO_JVM}
    inside: ClassVar = ("fsync", "thp")
    RATE = 1500

    def start(self) -> None:
        self.port = free_port()
        self.bin = newest()
        shutil.chown(self.folder, 65534, 65534)
        self.data = self.folder / "data"
        self.say(
            "initdb", "-D", self.data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8"
        )
        self.serve()
        self.say("pgbench", *self.address(), "-i", "-q", "-s", 1, "postgres")
        self.sql(*self.plant())
        if self.fault in self.inside:
            self.rest()
        self.sql("CHECKPOINT")
        if self.fault == "pages":
            # Pages that others have mapped too can't be taken away; who wrote these has.
            end(self.process, signal.SIGINT)
            self.serve()

    def serve(self) -> None:
        """Starts it on its data and waits until it takes connections."""
        environment = dict(os.environ)
        if self.fault == "thp":
            environment["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=1"
            # What is below the threshold is kept.
            environment["MALLOC_MMAP_THRESHOLD_"] = str(THRESHOLD_KB * 1000)
            environment["MALLOC_TRIM_THRESHOLD_"] = str(1 << 30)
        options = ["-c", "autovacuum=off", "-p", self.port]
        where = ["-c", "listen_addresses=127.0.0.1", "-k", self.folder, "-D", self.data]
        command = [*NOBODY, self.bin / "postgres", *options, *where]
        self.run(command, env=environment, how=signal.SIGINT, cwd=self.folder)
        until(lambda: self.process.poll() is not None or self.is_up(), "PostgreSQL serves", 60)

    def plant(self) -> tuple[str, ...]:
        """The table of the plants."""
        if self.fault == "pages":
            return (
                "CREATE TABLE plant (long text)",
                "ALTER TABLE plant ALTER long SET STORAGE PLAIN",
                f"INSERT INTO plant SELECT repeat('x', 6000) FROM generate_series(1, {ROWS})",
                "VACUUM plant",
            )
        return ("CREATE TABLE plant (kb int, pieces int)", "INSERT INTO plant VALUES (0, 0)")

    def address(self) -> tuple[object, ...]:
        """How clients find it."""
        return ("-h", "127.0.0.1", "-p", self.port, "-U", "tester")

    def client(self, program: str, *arguments: object) -> list[object]:
        """A program of PostgreSQL, as a user without rights."""
        return [*NOBODY, self.bin / program, *arguments]

    def say(self, program: str, *arguments: object) -> None:
        """Runs a program of PostgreSQL to its end."""
        command = [str(word) for word in self.client(program, *arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120)
        if done.returncode != 0:
            raise ProofError(f"{program}: {done.stderr.strip()}")

    def is_up(self) -> bool:
        """Whether it takes connections."""
        command = [str(word) for word in self.client("pg_isready", *self.address())]
        return subprocess.run(command, capture_output=True, cwd=self.folder).returncode == 0

    def victims(self) -> list[int]:
        """The backends of the load: what the postmaster has started for clients."""
        if self.fault == "quota":
            return [self.pid]
        return [pid for pid in children(self.pid) if is_client(pid)]

    def bench(self, script: str, name: str, *options: object) -> list[object]:
        """pgbench with a script of our own."""
        file = self.folder / name
        file.write_text(script)
        common = ("-n", "-M", "prepared", *self.address(), *options)
        return self.client("pgbench", *common, "-f", file, "postgres")

    def load(self, seconds: float) -> list[object]:
        """Short queries, one in 25 of them about the plant where that is about some only."""
        options = ("-c", self.connections, "-R", self.RATE, "-T", round(seconds))
        command = self.bench(SELECT, "select", *options)
        others = {"fsync": UPDATE, "thp": FILL, "pages": VISIT}
        if self.fault not in others:
            return command
        (self.folder / "other").write_text(others[self.fault])
        scripts = (f"{self.folder}/select@24", "-f", f"{self.folder}/other@1")
        return [*command[:-2], *scripts, "postgres"]

    def planted(self) -> AbstractContextManager[object]:
        if self.fault == "lock":
            return running(self.bench(KEEP, "keep", "-T", 3600), cwd=self.folder)
        return super().planted()

    def strike(self) -> None:
        """Commits wait for the disk; what is filled is fresh memory."""
        if self.fault == "fsync":
            self.wait_for_disk("on")
        else:
            self.fill(self.size)

    def rest(self) -> None:
        if self.fault == "fsync":
            self.wait_for_disk("off")
        else:
            self.fill(2 * self.size)

    def fill(self, pieces: int) -> None:
        """In how many pieces a request fills memory: each fresh, or twice as many, found again."""
        kb = round(1.02 * THRESHOLD_KB * self.size / pieces)
        self.sql(f"UPDATE plant SET kb = {kb}, pieces = {pieces}")

    def wait_for_disk(self, value: str) -> None:
        """Whether what is written must be on the disk, from the next transaction on."""
        self.sql(f"ALTER SYSTEM SET fsync = {value}", "SELECT pg_reload_conf()")

    def sql(self, *commands: str) -> None:
        """Runs some commands, each in a transaction of its own."""
        options = [word for command in commands for word in ("-c", command)]
        self.say("psql", *self.address(), *options, "postgres")


def newest() -> Path:
    """Where Debian keeps the newest version's programs."""
    found = Path("/usr/lib/postgresql").glob("*/bin/postgres")
    return max(found, key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0)).parent


def is_client(pid: int) -> bool:
    """Whether a process is a backend that serves a client; it says so in its title."""
    return "127.0.0.1" in Path(f"/proc/{pid}/cmdline").read_text()
