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

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

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


def about(window: Path) -> dict[str, Any]:
    """What a window says of itself, at its end."""
    whole = window.read_bytes()
    assert whole.startswith(b"TSTRACE1")
    assert whole.endswith(b"TSTRACE1")
    length = int.from_bytes(whole[-16:-8], "little")
    return json.loads(whole[-16 - length : -16])


def stories(window: Path, *options: object) -> dict[str, Any]:
    """What `timeline story --json` tells, with what always holds checked."""
    command = [installed.tailscope(), "timeline", "story", window, "--json", *options]
    done = subprocess.run([str(w) for w in command], capture_output=True, text=True, timeout=300)
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
    # Behind it may be said what a JVM did meanwhile.
    assert f": {first['name']}" in story["sentence"]
    assert first["ns"] == sum(g["ns"] for g in story["gaps"] if g["name"] == first["name"])


def share_of(times: list[tuple[int, int]], story: Story) -> float:
    """Which share of a request lies in these times (from and to, in ns)."""
    begin, end = story["begin_ns"], story["begin_ns"] + story["latency_ns"]
    return sum(max(0, min(end, b) - max(begin, a)) for a, b in times) / story["latency_ns"]


def share_of_others(story: Story) -> float:
    """Which share of a request's time went to others that had its CPU, or stopped its JVM."""
    others = ("waiting_for_cpu", "wake_up", "jvm_pause")
    ns = (cause["ns"] for cause in story["causes"] if cause["kind"] in others)
    return sum(ns) / story["latency_ns"]


def leading(told: dict[str, Any]) -> Counter[tuple[str, str]]:
    """How often each kind of cause and its name leads a story."""
    firsts = (story["causes"][0] for story in told["stories"])
    return Counter((cause["kind"], cause["name"]) for cause in firsts)


def ticks(window: Path, told: list[Story]) -> Counter[str | None] | None:
    """How many ticks met which function in the cause that leads each of these stories of a window;
    None where the kernel reports no ticks."""
    if about(window)["ladder"]["tick"][0] is None:
        return None
    found: Counter[str | None] = Counter()
    for story in told:
        for function in story["causes"][0].get("functions", []):
            found[function["name"]] += function["ticks"]
    return found


def drawn(window: Path) -> list[Any]:
    """The picture beside a window, by Perfetto's own definitions, which know all that is in it."""
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(window.with_suffix(".perfetto-trace").read_bytes())
    strange = {name for packet in trace.packet for name in unknown(packet, "packet")}
    assert not strange, strange
    return list(trace.packet)


def ran(window: Path, cpu: int, name: str) -> list[tuple[int, int]]:
    """When threads of a name had a CPU (from, to; ns), as the picture beside a window says."""
    found, since = [], None
    for packet in drawn(window):
        if not packet.HasField("ftrace_events") or packet.ftrace_events.cpu != cpu:
            continue
        for event in packet.ftrace_events.event:
            if not event.HasField("sched_switch"):
                continue
            if since is not None:
                found.append((since, event.timestamp))
            since = event.timestamp if event.sched_switch.next_comm == name else None
    return found


def unknown(message: Message, path: str) -> Iterator[str]:
    """Where a message holds fields that its definition does not have."""
    if len(UnknownFieldSet(message)):
        yield path
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for part in value if field.is_repeated else [value]:
                yield from unknown(part, f"{path}.{field.name}")
