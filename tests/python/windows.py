"""Windows of `tailscope timeline`, made here by hand; docs/reference/timeline.md has the format."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"TSTRACE1"
#: Kinds of events (crates/signals/include/tailscope_event.h).
SWITCH, WAKING, SOFTIRQ_IN, SOFTIRQ_OUT = 1, 2, 3, 4
PACKET_IN, TCP_IN, READY, RECEIVE, SEND, TRANSMIT = 13, 14, 15, 16, 17, 18
US = 1000

CLIENT, SERVER, HOG = 50, 7, 99


@dataclass
class Event:
    """One event; the time is in µs."""

    cpu: int
    us: float
    tid: int
    kind: int
    small: int = 0
    x: int = 0
    y: int = 0
    z: int = 0
    flags: int = 0

    def bytes(self, place: int) -> bytes:
        words = (int(self.us * US), place, self.tid, self.kind, self.flags, self.small)
        return struct.pack("=QIIBBHIII", *words, self.x, self.y, self.z)


def request_behind_a_hog() -> list[Event]:
    """A packet on CPU 0 wakes the server, which waits 6 ms for CPU 1 behind a hog."""
    theirs, ours = 1, 2
    return [
        Event(1, 10, SERVER, SWITCH, small=1, x=HOG, y=HOG, z=SERVER),
        Event(0, 20, 0, SWITCH, x=CLIENT, y=CLIENT),
        Event(0, 100, CLIENT, TRANSMIT, small=10, x=theirs, y=10),
        Event(0, 101, CLIENT, SOFTIRQ_IN, small=3),
        Event(0, 102, CLIENT, PACKET_IN),
        Event(0, 103, CLIENT, TCP_IN, small=10, x=ours, y=10),
        Event(0, 104, CLIENT, READY, x=ours),
        Event(0, 105, CLIENT, WAKING, x=SERVER, z=SERVER),
        Event(0, 130, CLIENT, SOFTIRQ_OUT, small=3),
        Event(0, 200, CLIENT, SWITCH, small=1, z=CLIENT),
        Event(1, 6100, HOG, SWITCH, x=SERVER, y=SERVER, z=HOG, flags=1),
        Event(1, 6110, SERVER, RECEIVE, x=ours, y=10, z=10, flags=1),
        Event(1, 6150, SERVER, TRANSMIT, small=20, x=ours, y=500),
        Event(1, 6160, SERVER, SEND, x=ours, y=500, z=20, flags=1),
        Event(1, 6200, SERVER, SWITCH, small=1, x=HOG, y=HOG, z=SERVER),
    ]


def write(path: Path, events: list[Event], hog: str = "hog") -> Path:
    """A window of these events of two CPUs."""
    content, parts = MAGIC, []
    for cpu in (0, 1):
        of = [event for event in events if event.cpu == cpu]
        part = {"cpu": cpu, "offset": len(content), "events": len(of)}
        parts.append({**part, "from_ns": 0, "overwritten": 0, "unwritten": 0})
        content += b"".join(event.bytes(place) for place, event in enumerate(of))
    names = {CLIENT: "client", SERVER: "server", HOG: hog}
    about = {
        **{"abi": 1, "tailscope": "", "kernel": "6.18", "arch": "x86_64", "reason": "slow"},
        **{"from_ns": 0, "to_ns": 7000 * US, "unix_offset_ns": 0, "slow_ns": 1_000_000},
        "parts": parts,
        "threads": {tid: {"name": name, "process": tid} for tid, name in names.items()},
        **{"processes": names, "watched": [SERVER], "interrupts": {}, "gaps": []},
        **{"processes_lost": 0, "ladder": {}},
    }
    text = json.dumps(about).encode()
    path.write_bytes(content + text + struct.pack("<Q", len(text)) + MAGIC)
    return path
