"""`tailscope record`, from its start to its ledger."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rig import installed
from rig.processes import Ended, Started
from rig.waiting import until

#: The memory that recorders have given a process, by its inodes.
Regions = frozenset[str]


def regions(program: Started) -> Regions:
    """Those that a process has mapped now."""
    lines = Path(f"/proc/{program.pid}/maps").read_text().splitlines()
    return frozenset(line.split()[4] for line in lines if "/memfd:tailscope (deleted)" in line)


def doctor(*arguments: str) -> str:
    """What `tailscope doctor` prints. Skips the test, with the doctor's reason, where this user or
    this kernel can't record. Programs that the verifier rejects are no such reason."""
    command = [installed.tailscope(), "doctor", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    rejected = "can't load the programs" in done.stderr and "not permitted" not in done.stderr
    if done.returncode == 3 and not rejected:
        pytest.skip(f"can't record here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done
    return done.stdout


class Recorder(Started):
    """A recorder that runs."""

    def __init__(self, ledger: Path, *arguments: object, under: Sequence[object] = ()) -> None:
        self.ledger = ledger
        command = [*under, installed.tailscope(), "record", "-o", ledger, *arguments]
        super().__init__(command, env=os.environ)

    def ready(self) -> Recorder:
        """Waits until it records what it was asked to."""
        until(lambda: "recording " in self.err or not self.runs, "the recorder is ready")
        assert "recording " in self.err, f"the recorder ended instead: {self.wait()}"
        return self

    def serves(self, program: Started, ns: float = 50e6, besides: Regions = frozenset()) -> None:
        """Waits until it has given a program with the SDK its memory, other than `besides`, and the
        program has made spans for `ns` of its CPU time."""
        until(
            lambda: not (program.runs and self.runs) or regions(program) - besides,
            "the program has the recorder's memory",
        )
        assert self.runs, self.wait()
        program.works(ns)

    def keeps_up(self) -> None:
        """Waits until it has looked at what the kernel's programs have written. A ring holds the
        receives and sends of some 600 requests."""
        looks = lambda: int(self.status("voluntary_ctxt_switches"))  # noqa: E731
        last = looks()
        until(lambda: not self.runs or looks() > last + 2, "the recorder has looked")

    def interrupt(self) -> Ended:
        """Ctrl-C."""
        return self.stop(signal.SIGINT)

    def kill(self) -> Ended:
        """kill -9."""
        return self.stop(signal.SIGKILL)

    def sealed(self) -> list[Path]:
        """The ledger's files that are whole."""
        return sorted(self.ledger.rglob("*.parquet"))


def about(ledger: Path) -> dict[str, Any]:
    """What a ledger's recorder says of itself."""
    return json.loads((ledger / "ledger.json").read_text())
