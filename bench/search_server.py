"""The lab's search server on Lucene (lab/search): `make search` builds it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

from harness import ROOT, Bench

CLASSES = ROOT / "target" / "lab" / "search"
LUCENE = ROOT / "target" / "lucene"


def need_built() -> None:
    """Ends the script where it is not built."""
    if not CLASSES.exists() or not list(LUCENE.glob("*.jar")):
        sys.exit("the search server is not built: run `make search` first")


def java(*options: object) -> list[str]:
    """A JVM with little memory, whose compiler is soon done. Last come the words of `Search`."""
    jars = ":".join(str(path) for path in (CLASSES, *sorted(LUCENE.glob("*.jar"))))
    always = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx192m", "-Xmn24m"]
    return ["java", *always, *map(str, options[:-1]), "-cp", jars, "Search", *options[-1]]


def index(b: Bench, parts: int, documents: int) -> Path:
    """The documents' indexes, one for each worker: folders 0, 1, …"""
    folder = b.folder / "index"
    words = ["index", str(folder), str(parts), str(documents)]
    subprocess.run(java(words), check=True, stderr=subprocess.DEVNULL)
    return folder


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def serves(port: int, seconds: float = 60) -> None:
    """Waits until somebody does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit(f"nobody serves port {port}")
