"""Whether others leave the machine alone, so that a measurement can begin.

Where a host is busy, a virtual CPU may stand still for milliseconds, and the guest is not told.
What ran at the time then seems to have taken them: a send, an interrupt, a client's own clock.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

#: For how long round trips are made, in ns.
LOOK_NS = 200_000_000
#: A round trip that takes longer was held up; on a quiet machine one takes 20 to 100 µs.
LONG_NS = 1_000_000
#: Which part of the time such trips may take.
MAY_BE_HELD_UP = 0.05
#: How long all measurements of a run wait together, in s, and for how long one waits at a time.
PATIENCE_S, PAUSE_S = 300.0, 1.0


@dataclass
class Quiet:
    """Waits for a quiet machine, as long as there is patience, and counts what came of it."""

    waited_s: float = 0.0
    not_quiet: int = 0

    def wait(self) -> str:
        """Returns when the machine is quiet or the patience is over; says so in that case."""
        begin = time.monotonic()
        while (share := held_up()) > MAY_BE_HELD_UP:
            waited = time.monotonic() - begin
            if self.waited_s + waited >= PATIENCE_S:
                self.waited_s += waited
                self.not_quiet += 1
                return (
                    f"The machine was not quiet: {share:.0%} of the time round trips were held up."
                )
            time.sleep(PAUSE_S)
        self.waited_s += time.monotonic() - begin
        return ""

    def summary(self) -> str:
        """One line on the whole run; empty where nothing had to wait for long."""
        if self.waited_s < PATIENCE_S / 10 and not self.not_quiet:
            return ""
        return (
            f"Measurements waited {self.waited_s:.0f} s for a quiet machine; "
            f"{self.not_quiet} began on one that was not."
        )


def held_up() -> float:
    """The part of the time that went to round trips over TCP, between two CPUs, that took long."""
    cpus = sorted(os.sched_getaffinity(0))
    with echo(cpus[-1]) as peer, pinned(cpus[0]):
        round_trip_ns(peer)  # the first waits for the start of the process
        return long_trips_ns(peer, time.perf_counter_ns() + LOOK_NS) / LOOK_NS


@contextmanager
def pinned(cpu: int) -> Iterator[None]:
    """Keeps this thread on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def long_trips_ns(peer: socket.socket, end_ns: int) -> int:
    long = 0
    while time.perf_counter_ns() < end_ns:
        trip = round_trip_ns(peer)
        long += trip if trip > LONG_NS else 0
    return long


def round_trip_ns(peer: socket.socket) -> int:
    begin = time.perf_counter_ns()
    peer.sendall(b"?")
    assert peer.recv(1), "the other process has ended"
    return time.perf_counter_ns() - begin


@contextmanager
def echo(cpu: int) -> Iterator[socket.socket]:
    """A connection to a process on this CPU that sends back what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        child = os.fork()
        if not child:
            send_back(listener, cpu)
        try:
            with socket.create_connection(listener.getsockname(), PATIENCE_S) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                yield peer
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def send_back(listener: socket.socket, cpu: int) -> None:
    """The life of that process. It must not go on as a second run of the tests."""
    try:
        os.sched_setaffinity(0, {cpu})
        client, _ = listener.accept()
        client.settimeout(PATIENCE_S)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while byte := client.recv(1):
            client.sendall(byte)
    finally:
        os._exit(0)
