"""Faults that keep servers, sockets or other sessions waiting, and what each must be found as.

Each strikes about one request in ten or twenty, so that p99 is one of those that it strikes; the
two that strike every request are looked for at the median.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.machine import ProofError, end, until

from thirdparty import built, groups
from thirdparty.case import FRESH, KEPT, Case
from thirdparty.client import BEFORE_OTHERS
from thirdparty.own import Echo, PythonThreads
from thirdparty.struck import (
    FileLock,
    FreshMemory,
    PostgresKept,
    RedisSlowCommand,
    RegisteredRedis,
    SerialServer,
    SlowlyAskedEcho,
)

#: How long something stands still, and how often, in s.
STILL_S, EVERY_S = 0.005, 0.1

Plant = Callable[[Case], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Fault:
    """What is planted in which server, and which cause must come first."""

    case: type[Case]
    mode: str
    plant: Plant
    #: One of these is the first of the ranking.
    causes: frozenset[str]
    percentile: str = "p99"
    #: What the name of whoever is to blame has in it, for most of the cause's time.
    blamed: Callable[[Case], str] | None = None
    #: Whether the fault is only what the blamed one does, and not all of the cause.
    only_blamed: bool = False
    #: Further options of `tailscope record`.
    options: tuple[str, ...] = ()

    @property
    def strikes_all(self) -> bool:
        """Whether every request meets it: only another recording tells then what is usual."""
        return self.percentile == "p50"


@contextmanager
def now_and_then(begin: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Something begins every `EVERY_S` and stops `STILL_S` later, while the block runs."""
    over = threading.Event()

    def strike() -> None:
        while not over.wait(EVERY_S - STILL_S):
            begin()
            over.wait(STILL_S)
            stop()

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        stop()


@contextmanager
def stopped(case: Case) -> Iterator[None]:
    """Signals that stop the process and have it go on."""

    def send(number: int) -> Callable[[], None]:
        return lambda: [os.kill(pid, number) for pid in case.pids] and None

    with now_and_then(send(signal.SIGSTOP), send(signal.SIGCONT)):
        yield


@contextmanager
def frozen(case: Case) -> Iterator[None]:
    """The control group's freezer."""
    with groups.freezer(case.pids) as freeze:

        def write(value: str) -> Callable[[], None]:
            return lambda: freeze.write_text(value) and None

        with now_and_then(write("1"), write("0")):
            yield


@contextmanager
def traced(case: Case, *how: object, before: tuple[str, ...] = BEFORE_OTHERS) -> Iterator[None]:
    """strace on all threads, started by the command `before` it."""
    said = case.folder / "strace"
    options = ("-f", "-o", said, *how)
    attach = [word for pid in case.pids for word in ("-p", str(pid))]
    command = [*before, built.path("strace"), *(str(word) for word in options), *attach]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(lambda: tracer.poll() is not None or is_traced(case.pids[0]), "strace is attached")
        if tracer.poll() is not None:
            raise built.Lacking("strace can't attach here")
        yield
    finally:
        end(tracer, signal.SIGINT)


@contextmanager
def file_locked(case: Case) -> Iterator[None]:
    """This process holds the lock of the server's file now and then."""
    with (case.folder / "locked").open() as file:

        def lock(how: int) -> Callable[[], None]:
            return lambda: fcntl.flock(file, how)

        with now_and_then(lock(fcntl.LOCK_EX), lock(fcntl.LOCK_UN)):
            yield


def own_name(_: Case) -> str:
    """This process, as the kernel calls it."""
    return Path("/proc/self/comm").read_text().strip()


def is_traced(pid: int) -> bool:
    """Whether somebody traces a process."""
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


def held_by_tracer(case: Case) -> AbstractContextManager[None]:
    """A tracer that lets one answer in ten wait for 5 ms before it is sent."""
    return traced(case, "-e", "trace=write", "-e", "inject=write:delay_enter=5ms:when=10+10")


def every_call_traced(case: Case) -> AbstractContextManager[None]:
    """strace as people use it: every system call stops twice.

    It shares a CPU with the server. From another CPU, each of the two has to wake the other's CPU,
    which is a wait for a CPU, and on some virtual machines longer than the stop itself.
    """
    for pid in case.pids:
        subprocess.run(["taskset", "-acp", "1", str(pid)], check=True, stdout=subprocess.DEVNULL)
    return traced(case, before=("taskset", "-c", "1"))


def in_itself(_: Case) -> AbstractContextManager[None]:
    """The server does it by itself."""
    return nullcontext()


@contextmanager
def interrupted(case: Case) -> Iterator[None]:
    """Another process interrupts the CPUs of all that have registered for membarrier(2)."""
    command = [*BEFORE_OTHERS, "taskset", "-c", "0", str(built.membarrier())]
    other = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
        if other.poll() is not None:
            raise ProofError("membarrier(2) is refused here")
    finally:
        end(other)


def striking(case: Case) -> AbstractContextManager[None]:
    """What the case itself has beside its load."""
    return case.striking()  # type: ignore[attr-defined]


STOPPED = frozenset({"stopped"})
WAITS = frozenset({"network", "lock", "sleep", "queue"})

FAULTS: dict[str, Fault] = {
    "stopped": Fault(Echo, KEPT, stopped, STOPPED),
    "frozen": Fault(Echo, KEPT, frozen, STOPPED),
    "traced": Fault(SlowlyAskedEcho, KEPT, held_by_tracer, STOPPED, percentile="p95"),
    "strace": Fault(SlowlyAskedEcho, KEPT, every_call_traced, STOPPED, percentile="p50"),
    "nagle": Fault(PythonThreads, KEPT, in_itself, frozenset({"tcp"})),
    "accept": Fault(SerialServer, FRESH, in_itself, frozenset({"accept"})),
    "slow-command": Fault(
        RedisSlowCommand,
        KEPT,
        striking,
        frozenset({"queue"}),
        blamed=lambda _: "EVAL",
    ),
    "file-lock": Fault(FileLock, KEPT, file_locked, frozenset({"lock"}), blamed=own_name),
    "row-lock": Fault(PostgresKept, KEPT, striking, WAITS, blamed=lambda _: "postgres"),
    "membarrier": Fault(RegisteredRedis, KEPT, interrupted, frozenset({"irq"}), percentile="p50"),
    "reclaim": Fault(FreshMemory, KEPT, striking, frozenset({"reclaim"})),
}
