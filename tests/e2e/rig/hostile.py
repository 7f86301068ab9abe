"""Attackers: programs of a user without rights, and what a recorder holds while they run."""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

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
    """Runs Python as the attacker, in a folder of its own, and waits until it prints `ready`."""
    if os.geteuid():
        pytest.skip("only root can start a process of another user")
    place = own_folder(folder)
    python = interpreter(folder)
    shutil.copy(os.path.realpath(PYTHON), python)
    with ExitStack() as stack:

        def start(program: str, *arguments: object) -> Started:
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


def elf(section: bytes, name: bytes, kind: int, *, claims: int | None = None) -> bytes:
    """A 64-bit program file: a page of code that is no instruction, and one section of this name.

    `claims`: the length that the section's header says.
    """
    page, names = 4096, b"\0" + name + b"\0.names\0"
    at = {"section": 2 * page, "names": 3 * page, "headers": 3 * page + 256}
    length = len(section) if claims is None else claims
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, at["headers"], 0, 64, 56, 1, 64, 3, 2)
    head += struct.pack("<IIQQQQQQ", 1, 5, page, page, page, page, page, page)
    headers = bytes(64)
    headers += struct.pack("<IIQQQQIIQQ", 1, kind, 0, 0, at["section"], length, 2, 0, 1, 24)
    headers += struct.pack(
        "<IIQQQQIIQQ", 2 + len(name), 3, 0, 0, at["names"], len(names), 0, 0, 1, 0
    )
    whole = bytearray(4 * page)
    whole[: len(head)] = head
    whole[page : 2 * page] = b"\x06" * page
    for key, bytes_ in {"section": section, "names": names, "headers": headers}.items():
        whole[at[key] : at[key] + len(bytes_)] = bytes_
    return bytes(whole)


def sdk_note(address: int) -> bytes:
    """A note like that of the SDK's probe, for an instruction at this address."""
    said = struct.pack("<QQQ", address, 0, 0) + b"tailscope\0thread\0-8@%rax\0"
    note = struct.pack("<III", 8, len(said), 3) + b"stapsdt\0" + said
    return note + bytes(-len(note) % 4)
