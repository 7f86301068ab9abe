"""Control groups of the lab's, which freeze or run out of memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from thirdparty.built import Lacking

UNIFIED = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
MEMORY_V1 = Path("/sys/fs/cgroup/memory")


@contextmanager
def group(root: Path, pids: list[int]) -> Iterator[Path]:
    """A group with these processes, which go back to where they were."""
    try:
        made = Path(tempfile.mkdtemp(prefix=f"tailscope-lab-{os.getpid()}-", dir=root))
    except OSError as error:
        raise Lacking(f"can't make a control group in {root}: {error}") from None
    try:
        for pid in pids:
            (made / "cgroup.procs").write_text(str(pid))
        yield made
    finally:
        # Those that have ended meanwhile are in no group.
        for pid in (made / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        remove(made)


def remove(made: Path) -> None:
    """Removes a group once the kernel has let go of who was in it."""
    deadline = time.monotonic() + 5
    while True:
        try:
            made.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@contextmanager
def freezer(pids: list[int]) -> Iterator[Path]:
    """The file that freezes these processes with 1 and thaws them with 0 (cgroup v2)."""
    root = next((root for root in UNIFIED if (root / "cgroup.controllers").exists()), None)
    if root is None:
        raise Lacking("this machine has no cgroup v2 hierarchy, so no freezer of it")
    with group(root, pids) as made:
        frozen = made / "cgroup.freeze"
        try:
            yield frozen
        finally:
            frozen.write_text("0")


@contextmanager
def limited_memory(pids: list[int], mib: int) -> Iterator[Path]:
    """A group whose memory is reclaimed when it has more: by memory.high, or version 1's limit."""
    v2 = next((root for root in UNIFIED if has_memory(root)), None)
    if v2 is None and not (MEMORY_V1 / "memory.limit_in_bytes").exists():
        raise Lacking("this machine has no memory controller for control groups")
    with group(v2 or MEMORY_V1, pids) as made:
        name = "memory.high" if v2 else "memory.limit_in_bytes"
        (made / name).write_text(str(mib << 20))
        yield made


def has_memory(root: Path) -> bool:
    """Whether version 2 has the memory controller, and hands it to groups."""
    with suppress(OSError):
        return "memory" in (root / "cgroup.subtree_control").read_text().split()
    return False
