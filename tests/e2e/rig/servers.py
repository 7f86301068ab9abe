"""Servers under load: memcached as Debian has it, the lab's own, and the lab's load."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from proof.ports import answers, free_port

from rig import installed
from rig.processes import Started
from rig.waiting import until


class Server(Started):
    """A server of memcached's protocol."""

    def __init__(self, port: int, *command: object) -> None:
        self.port = port
        super().__init__(command, env=os.environ)
        until(lambda: answers(port) or not self.runs, f"{command[0]} serves port {port}")
        assert self.runs, self.wait()


def memcached(cpu: int, under: Sequence[object] = ()) -> Server:
    """Debian's memcached with one worker thread, all its threads on one CPU."""
    port = free_port()
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    command = [*under, "taskset", "-c", cpu, "memcached", *user]
    return Server(port, *command, "-l", "127.0.0.1", "-p", port, "-U", 0, "-t", 1)


def kvserver(*options: object, under: Sequence[object] = ()) -> Server:
    """The lab's annotated server."""
    port = free_port()
    return Server(port, *under, installed.LAB / "kvserver", "--port", port, *options)


def load(server: Server, *options: object, under: Sequence[object] = ()) -> Started:
    """Load on a server; its JSON says what latency it saw."""
    target = f"127.0.0.1:{server.port}"
    return Started([*under, installed.FAULTS, "load", "--memcached", target, "--json", *options])


def fault(kind: str, *options: object, under: Sequence[object] = ()) -> Started:
    """A fault of the lab that has begun, and goes on until it is stopped."""
    started = Started([*under, installed.FAULTS, kind, *options])
    # Whatever is in front of it has become the lab, which knows by now how it is to be ended.
    until(lambda: not started.runs or started.hears(signal.SIGTERM), f"{kind} has begun")
    assert started.runs, started.wait()
    return started
