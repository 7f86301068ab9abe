"""`tailscope timeline`: a flight recorder that runs, and the stories in its windows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rig import installed
from rig.processes import Started
from rig.waiting import until

Story = dict[str, Any]


class Timeline(Started):
    """A flight recorder that keeps events."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.folder = folder
        command = [installed.tailscope(), "timeline", "-o", folder, *arguments]
        super().__init__(command, env=os.environ)
        until(lambda: "keeping " in self.err or not self.runs, "the flight recorder is ready")
        assert "keeping " in self.err, f"it ended instead: {self.wait()}"

    def windows(self) -> list[Path]:
        """Those that are whole, oldest first."""
        return sorted(self.folder.glob("*.timeline"), key=lambda path: path.stem.split("-")[-1])

    def ask(self) -> None:
        """SIGUSR1, and waits for the window."""
        before = len(self.windows())
        os.kill(self.pid, signal.SIGUSR1)
        until(lambda: len(self.windows()) > before, "the window is written")


def stories(window: Path, *options: object) -> dict[str, Any]:
    """What `timeline story --json` tells, with what always holds checked."""
    command = [installed.tailscope(), "timeline", "story", window, "--json", *options]
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    told = json.loads(done.stdout)
    for story in told["stories"]:
        check_gaps(story)
    return told


def check_gaps(story: Story) -> None:
    """The gaps lie end to end from the request's begin to its end, and the sentence is of them."""
    at = 0
    for gap in story["gaps"]:
        assert gap["at_ns"] == at, (gap, story["sentence"])
        at += gap["ns"]
    assert at == story["latency_ns"], story
    first = story["causes"][0]
    assert story["sentence"].endswith(f": {first['name']}")
    assert first["ns"] == sum(g["ns"] for g in story["gaps"] if g["name"] == first["name"])


def leading(told: dict[str, Any]) -> Counter[tuple[str, str]]:
    """How often each kind of cause and its name leads a story."""
    firsts = (story["causes"][0] for story in told["stories"])
    return Counter((cause["kind"], cause["name"]) for cause in firsts)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of Protocol Buffers, by their numbers."""

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    at = 0
    while at < len(message):
        key = varint()
        match key & 7:
            case 0:
                yield key >> 3, varint()
            case 1:
                yield key >> 3, int.from_bytes(message[at : at + 8], "little")
                at += 8
            case 2:
                length = varint()
                assert at + length <= len(message)
                yield key >> 3, message[at : at + length]
                at += length
            case other:
                raise AssertionError(f"no wire type of Perfetto's: {other}")
