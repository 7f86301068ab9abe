"""The programs of `programs/`: where they are, and compiled where that is needed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from proof.machine import ROOT, ProofError

SOURCES = Path(__file__).parent / "programs"
BUILT = ROOT / "target" / "servers"


class Lacking(Exception):
    """A program that a server needs is not on this machine."""


def need(*names: str) -> None:
    """Raises `Lacking` unless all of these programs are installed."""
    for name in names:
        path(name)


def path(name: str) -> str:
    """Where an installed program is."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/go/bin")
    if not found:
        raise Lacking(f"{name} is not installed: scripts/setup --for-servers")
    return found


def echo() -> Path:
    """The empty server in C."""
    source = SOURCES / "echo.c"
    return compiled("echo", [source], [path("cc"), "-O2", "-o", BUILT / "echo", source])


def membarrier() -> Path:
    """The program that interrupts others."""
    source = SOURCES / "membarrier.c"
    command = [path("cc"), "-O2", "-o", BUILT / "membarrier", source]
    return compiled("membarrier", [source], command)


def membarrier_library() -> Path:
    """The library by which a process takes part."""
    source = SOURCES / "membarrier.c"
    output = BUILT / "membarrier.so"
    command = [path("cc"), "-O2", "-fPIC", "-shared", "-o", output, source]
    return compiled(output.name, [source], command)


def go(name: str = "goservers", folder: Path = SOURCES / "goservers") -> Path:
    """A program in Go, by default all the servers in Go."""
    command = [path("go"), "build", "-o", BUILT / name, "."]
    return compiled(name, list(folder.iterdir()), command, folder)


def compiled(
    name: str, sources: Sequence[Path], command: Sequence[object], cwd: Path = SOURCES
) -> Path:
    """A program, compiled if one of its sources is newer."""
    output = BUILT / name
    newest = max(source.stat().st_mtime for source in sources)
    if output.exists() and output.stat().st_mtime >= newest:
        return output
    BUILT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        raise ProofError(f"{name} can't be compiled: {done.stderr.strip()[-500:]}")
    return output
