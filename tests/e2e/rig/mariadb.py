"""A MariaDB of a test's own: Debian's program, a folder that goes, a unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rig.processes import NOBODY, Started
from rig.waiting import until

PROGRAM = Path("/usr/sbin/mariadbd")


def _unprivileged() -> tuple[str, ...]:
    # MariaDB refuses to run as root.
    return NOBODY if os.geteuid() == 0 else ()


class MariaDb(Started):
    """A running server; ended by its id."""

    def __init__(self, folder: Path) -> None:
        if not PROGRAM.exists() or not shutil.which("mariadb-slap"):
            pytest.skip("MariaDB's server and clients are not installed")
        self.folder = folder / "mariadb"
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, 65534, 65534)
        data, self.socket = self.folder / "data", self.folder / "s"
        self._run(
            *("mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db"),
            "--auth-root-authentication-method=normal",
        )
        options = ["--no-defaults", f"--datadir={data}", f"--socket={self.socket}"]
        options += ["--skip-networking", "--innodb-flush-log-at-trx-commit=0"]
        super().__init__([*_unprivileged(), PROGRAM, *options], cwd=self.folder)
        # It says so on its error output, so no client has to ask, whose commands would be counted.
        until(lambda: "ready for connections" in self.err or not self.runs, "MariaDB serves", 60)
        assert self.runs, self.wait()

    def _run(self, *words: object, text: str = "") -> str:
        command = [str(word) for word in (*_unprivileged(), *words)]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=self.folder, timeout=120
        )
        assert done.returncode == 0, done
        return done.stdout

    def sql(self, text: str) -> str:
        """What the client prints for statements, each of which it sends as one command."""
        client = ("mariadb", "--no-defaults", f"--socket={self.socket}", "-u", "root", "-N")
        return self._run(*client, text=text)

    def wait_for_quiet(self) -> None:
        """Until it has heard of every client's end but that of the one who asks."""
        until(lambda: "\t1\n" in self.sql("SHOW STATUS LIKE 'Threads_connected';\n"), "it is quiet")

    def slap(self, *options: object) -> str:
        """What MariaDB's own load generator reports."""
        tool = ("mariadb-slap", "--no-defaults", f"--socket={self.socket}", "-u", "root")
        return self._run(*tool, *options)
