"""PostgreSQL whose backends want the same row."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Sequence
from typing import ClassVar

from proof.machine import NOBODY, ProofError, until
from proof.postgres import newest

from thirdparty import built
from thirdparty.case import KEPT, Case
from thirdparty.client import BEFORE_OTHERS, Client, quantile


class PostgresRowLock(Case):
    """Debian's PostgreSQL under pgbench: each of two sessions waits for the other's row lock."""

    title = "PostgreSQL, row lock"
    modes: ClassVar = (KEPT,)
    SESSIONS: ClassVar = 2
    #: One message, so one request, and one transaction: the row is kept for 2 ms.
    STATEMENT: ClassVar = "UPDATE one SET n = n + 1 WHERE id = 1 \\; SELECT pg_sleep(0.002);\n"
    #: Transactions a second; 0 means as many as there can be.
    RATE: ClassVar = 0

    def start(self) -> None:
        try:
            self.bin = newest()
        except ValueError:
            raise built.Lacking("PostgreSQL is not installed: scripts/setup") from None
        shutil.chown(self.folder, 65534, 65534)
        data = self.folder / "data"
        self.say("initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8")
        options = ("-c", "autovacuum=off", "-c", "fsync=off", "-p", self.port)
        where = ("-c", "listen_addresses=127.0.0.1", "-k", self.folder, "-D", data)
        command = [*NOBODY, self.bin / "postgres", *options, *where]
        # Its fast shutdown, which waits until its backends have ended.
        self.stack.callback(self.end)
        self.process = self.run(*command, cwd=self.folder)
        until(self.is_up, "PostgreSQL serves", 60)
        words = "CREATE TABLE one (id int PRIMARY KEY, n int); INSERT INTO one VALUES (1, 0)"
        self.say("psql", *self.address, "-c", words, "postgres")

    def end(self) -> None:
        if hasattr(self, "process") and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(20)

    @property
    def address(self) -> tuple[object, ...]:
        """How clients find it."""
        return ("-h", "127.0.0.1", "-p", self.port, "-U", "tester")

    def say(self, program: str, *arguments: object, under: Sequence[object] = ()) -> str:
        """Runs a program of PostgreSQL to its end, as a user without rights."""
        words = (*under, *NOBODY, self.bin / program, *arguments)
        command = [str(word) for word in words]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120)
        if done.returncode != 0:
            raise ProofError(f"{program}: {done.stderr.strip()}")
        return done.stdout

    def is_up(self) -> bool:
        """Whether it takes connections."""
        command = [str(word) for word in (self.bin / "pg_isready", *self.address)]
        return subprocess.run(command, capture_output=True, cwd=self.folder).returncode == 0

    def load(self, mode: str, seconds: float) -> Client:
        """pgbench writes down each transaction with its latency in µs.

        Like all clients it runs before others: how late it was itself it does not say.
        """
        script, logs = self.folder / "contended", self.folder / "latency"
        script.write_text(self.STATEMENT)
        for old in self.folder.glob("latency.*"):
            old.unlink()
        options = ["-n", "-c", self.SESSIONS, "-T", max(1, round(seconds)), "-f", script]
        options += ["-R", self.RATE] if self.RATE else []
        words = (*options, "-l", f"--log-prefix={logs}", *self.address, "postgres")
        self.say("pgbench", *words, under=BEFORE_OTHERS)
        latencies: dict[float, float] = {}
        for log in self.folder.glob("latency.*"):
            for line in log.read_text().splitlines():
                ns = float(line.split()[2]) * 1e3
                latencies[ns] = latencies.get(ns, 0) + 1
        # Each session, and the one in which pgbench looks at the server first, asks for encryption
        # (SSLRequest), says who it is (Startup), and takes leave (Terminate, which has no answer).
        requests = round(sum(latencies.values())) + 3 * (self.SESSIONS + 1)
        return Client(requests, *(quantile(latencies, share) for share in (0.5, 0.99, 0.05)))
