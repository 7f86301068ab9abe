"""A PostgreSQL cluster of a test's own: Debian's program, a folder that goes, a unix socket."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rig.processes import NOBODY, Started
from rig.waiting import until


def programs() -> Path:
    """Where Debian keeps the newest version's programs; skips where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=_version)
    if not found:
        pytest.skip("PostgreSQL is not installed")
    return found[-1].parent


def _version(program: Path) -> int:
    return int(re.sub(r"\D", "", program.parts[-3]) or 0)


def _unprivileged() -> Sequence[str]:
    # PostgreSQL refuses to run as root.
    return NOBODY if os.geteuid() == 0 else ()


class Cluster(Started):
    """A running server; ended, with all its backends, by the id of its postmaster."""

    def __init__(self, folder: Path) -> None:
        self.bin = programs()
        self.folder = folder / "cluster"
        self.folder.mkdir()
        if os.geteuid() == 0:
            shutil.chown(self.folder, 65534, 65534)
        data = self.folder / "data"
        self._run("initdb", "-D", data, "-A", "trust", "-U", "tester", "--no-sync", "-E", "UTF8")
        options = ["-c", "fsync=off", "-c", "autovacuum=off", "-c", "shared_buffers=16MB"]
        where = ["-c", "listen_addresses=", "-k", self.folder, "-D", data]
        super().__init__(
            [*_unprivileged(), self.bin / "postgres", *options, *where], cwd=self.folder
        )
        until(
            lambda: not self.runs or self._said("pg_isready", "-h", self.folder) == 0,
            "PostgreSQL serves",
            seconds=60,
        )
        assert self.runs, self.wait()

    def _command(self, program: str, *arguments: object) -> list[str]:
        return [str(w) for w in (*_unprivileged(), self.bin / program, *arguments)]

    def _said(self, program: str, *arguments: object) -> int:
        command = self._command(program, *arguments)
        return subprocess.run(command, capture_output=True, cwd=self.folder, timeout=60).returncode

    def _run(self, program: str, *arguments: object) -> str:
        command = self._command(program, *arguments)
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=120)
        assert done.returncode == 0, done
        return done.stdout

    def sql(self, text: str) -> str:
        """What psql answers; errors in the text are no failure of this."""
        command = self._command("psql", "-h", self.folder, "-U", "tester", "-At", "postgres")
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, cwd=self.folder, timeout=60
        )
        return done.stdout

    def pgbench(self, *arguments: object) -> str:
        """What pgbench reports."""
        return self._run("pgbench", "-h", self.folder, "-U", "tester", *arguments, "postgres")

    def end(self) -> None:
        """Fast shutdown: waits for its backends to end."""
        assert self.stop(signal.SIGINT, seconds=60).code == 0
