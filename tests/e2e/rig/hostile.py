"""Attackers: programs of a user without rights, and what a recorder holds while they run."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rig import installed
from rig.processes import AS_NOBODY, Started
from rig.waiting import until

#: The user that attacks.
NOBODY = AS_NOBODY["user"]
#: The system's interpreter, which is copied: nobody else's programs run the copy.
PYTHON = "/usr/bin/python3"
#: Root without the rights that the installed agent lacks: links to mapped files are closed.
AS_AGENT = ("setpriv", "--bounding-set=-sys_admin,-checkpoint_restore")

Attack = Callable[..., Started]


def own_folder(folder: Path) -> Path:
    """A folder of the attacker's."""
    made = folder / "attacker"
    made.mkdir()
    os.chown(made, NOBODY, NOBODY)
    return made


def interpreter(folder: Path) -> Path:
    """What attackers run."""
    return folder / "python"


@pytest.fixture
def attack(folder: Path) -> Iterator[Attack]:
    """Runs a program of lab/attacks as the attacker, in its folder, and waits until it is ready."""
    if os.geteuid():
        pytest.skip("only root can start a process of another user")
    place = own_folder(folder)
    python = interpreter(folder)
    shutil.copy(os.path.realpath(PYTHON), python)
    with ExitStack() as stack:

        def start(name: str, *arguments: object) -> Started:
            # As text: the attacker can't read the project's files.
            program = (installed.ROOT / "lab" / "attacks" / f"{name}.py").read_text()
            command = [python, "-I", "-c", program, *arguments]
            started = stack.enter_context(Started(command, cwd=place, **AS_NOBODY))
            until(lambda: "ready" in started.out or not started.runs, "the attack is ready")
            assert started.runs, started.wait()
            return started

        yield start


def descriptors(pid: int) -> int:
    """How many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_mib(started: Started) -> float:
    """What a process holds in memory."""
    return int(started.status("VmRSS").split()[0]) / 1024


def lines(started: Started) -> int:
    """How many lines it has written to its log."""
    return len(re.findall(r"\n", started.err))
