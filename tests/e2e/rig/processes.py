"""Processes that a test starts, and ends by their id."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.waiting import until

#: A prefix that runs a command, for root, as a user without rights. The process is root's at first.
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
#: The same as options of `Popen`, for a process that is that user's by the time its id is known.
AS_NOBODY: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []}

#: Whether each session has a share of the CPUs.
AUTOGROUPS = Path("/proc/sys/kernel/sched_autogroup_enabled")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    out: str
    err: str

    def json(self) -> dict[str, Any]:
        """The JSON object that it printed last."""
        return json.loads(self.out[self.out.rindex("\n{") if "\n{" in self.out else 0 :])

    def clean(self) -> Ended:
        """Itself, if it ended with 0."""
        assert self.code == 0, self
        return self


class Started:
    """A running process with its output in files; a context manager that ends it."""

    def __init__(self, command: Sequence[object], **options: Any) -> None:  # noqa: ANN401
        self._out = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._err = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            **options,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    @property
    def out(self) -> str:
        return _text(self._out)

    @property
    def err(self) -> str:
        return _text(self._err)

    def status(self, field: str) -> str:
        """A line of /proc/PID/status, without its name."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return line.split(":", 1)[1].strip()
        raise KeyError(field)

    def hears(self, how: int) -> bool:
        """Whether it has a handler for a signal; before it has, the signal would end it."""
        return bool(int(self.status("SigCgt"), 16) & 1 << (how - 1))

    def cpu_ns(self) -> int:
        """The CPU time that all its threads have had."""
        # The process's clock (MAKE_PROCESS_CPUCLOCK of linux/posix-timers.h): it has the time of
        # threads that have ended too.
        return time.clock_gettime_ns(~self.pid << 3 | 2)

    def works(self, ns: float) -> None:
        """Waits until it has had so much more CPU time, however long the machine lets it wait."""
        before = self.cpu_ns()
        until(lambda: not self.runs or self.cpu_ns() > before + ns, "it goes on with its work")
        assert self.runs, self.wait()

    def wait(self, seconds: float = 60) -> Ended:
        """Waits for its own end."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            words = " ".join(self.process.args)
            raise AssertionError(
                f"after {seconds:g} s it still runs: {words}\n{self.out}\n{self.err}\n"
                f"{threads_of(self.pid)}"
            ) from None
        return Ended(code, self.out, self.err)

    def stop(self, how: int = signal.SIGTERM, seconds: float = 60) -> Ended:
        """Asks it to end, and waits."""
        if self.runs:
            os.kill(self.pid, how)
        return self.wait(seconds)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)
        self._out.close()
        self._err.close()


def threads_of(pid: int) -> str:
    """What each thread of a process does: its state, its CPU time, and its stack in the kernel."""
    said = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with suppress(OSError):
            state, *fields = (task / "stat").read_text().rpartition(") ")[2].split()
            ticks = int(fields[10]) + int(fields[11])
            name = (task / "comm").read_text().strip()
            said.append(f"{task.name} {name} {state} {ticks} ticks")
            lines = (task / "stack").read_text().splitlines()  # for root alone
            said[-1] += ": " + " < ".join(line.partition("] ")[2] for line in lines)
    return "\n".join(said)


def end(process: subprocess.Popen[Any]) -> None:
    """Ends it if it still runs: asked first, so that it can put back what it changed."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def held(tid: int) -> Iterator[None]:
    """One thread of a process of ours stands still (ptrace(2)), and goes on afterwards."""
    seize, interrupt, detach = 0x4206, 0x4207, 17
    libc = ctypes.CDLL(None, use_errno=True)

    def ptrace(request: int) -> None:
        if libc.ptrace(request, ctypes.c_long(tid), None, None) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    ptrace(seize)
    ptrace(interrupt)
    os.waitpid(tid, 0x40000000)  # __WALL: threads too
    try:
        yield
    finally:
        ptrace(detach)


def undisturbed() -> list[str]:
    """A prefix that keeps a machine's other work from a program's CPU, where that is allowed.

    What comes under it must sleep for more than 5 % of its time: the kernel stops real-time
    threads that don't.
    """
    prefix = ["chrt", "--fifo", "50"]
    allowed = subprocess.run([*prefix, "true"], capture_output=True).returncode == 0
    return prefix if allowed else []


def favoured() -> list[str]:
    """A prefix by which a program that never sleeps has its CPU before a machine's other work, as
    far as the kernel's shares go and where that is allowed."""
    prefix = ["nice", "-n", "-39"]  # the least nice, however nice the tests themselves are
    done = subprocess.run([*prefix, "nice"], capture_output=True, text=True)
    if done.stdout.strip() != "-20":
        return []
    if not AUTOGROUPS.exists() or AUTOGROUPS.read_text().strip() == "0":
        return prefix
    # Each session has an equal share, and nice counts within one: sched(7), "autogroup".
    raised = '(echo -20 > /proc/self/autogroup) 2>/dev/null; exec "$@"'
    return ["setsid", "sh", "-c", raised, "sh", *prefix]


def _text(file: Any) -> str:  # noqa: ANN401
    return os.pread(file.fileno(), 1 << 24, 0).decode(errors="replace")
