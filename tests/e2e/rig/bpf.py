"""What recorders leave in the kernel."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rig.waiting import until

Kind = str  #: "prog" or "link"


def listed() -> set[tuple[Kind, int]]:
    """Every program and link in the kernel, as bpftool lists them."""
    found = set()
    for kind in ("prog", "link"):

        def list_all(kind: str = kind) -> subprocess.CompletedProcess[str] | None:
            command = ["bpftool", "--json", kind, "list"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            # It fails where one goes while it lists them.
            return done if done.returncode == 0 else None

        done = until(list_all, f"bpftool lists each {kind}")
        found |= {(kind, item["id"]) for item in json.loads(done.stdout or "[]")}
    return found


def held_by(pid: int | str) -> Iterator[tuple[Kind, int]]:
    """The programs and links that a process has open."""
    try:
        descriptors = list(Path(f"/proc/{pid}/fdinfo").iterdir())
    except OSError:
        return  # it ended meanwhile
    for descriptor in descriptors:
        try:
            text = descriptor.read_text()
        except OSError:
            continue  # it was closed after it was listed
        for line in text.splitlines():
            if found := re.match(r"(prog|link)_id:\s*(\d+)", line):
                yield found[1], int(found[2])


def orphans() -> set[tuple[Kind, int]]:
    """Programs and links that no living process holds: left behind, or about to go."""
    everything = listed()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            everything -= set(held_by(process.name))
    return everything


def pins() -> set[str]:
    """Whatever is pinned in the BPF file system."""
    return {str(path) for path in Path("/sys/fs/bpf").glob("**/*")}
