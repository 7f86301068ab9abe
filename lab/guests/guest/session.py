"""Many commands in one guest, each with its output and its exit code: what tests want.

The guest reads the number of a job from its console, runs the script of that number in the
shared folder, and answers with a line of the number and the exit code. What the script writes
to its standard streams goes to files in the shared folder.
"""

from __future__ import annotations

import selectors
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from guest.boot import Boot
from guest.kernels import Kernel
from guest.machine import Machine

#: Where jobs are, in the shared folder; their working folder is /tmp, in the guest's memory.
JOBS = "jobs"
WORKER = f"""
cd /tmp
echo ready
while read -r job; do
    setsid sh "/share/{JOBS}/$job" </dev/null >"/share/{JOBS}/$job.out" 2>"/share/{JOBS}/$job.err" &
    wait $!
    code=$?
    pkill -KILL -s $!
    echo "$job $code"
done
"""
BOOT_SECONDS = 180
#: What a command that ran into its own limit gets to end, and its answer to arrive.
GRACE_SECONDS = 30
#: Keeps the guest's CPU busy between two looks at its clock, for about a tenth of a second of it.
BUSY = "cat /proc/uptime; i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; cat /proc/uptime"
#: How many times slower than when it was measured a guest may become, beside other work here.
SLOWER = 3


class GuestDied(Exception):
    """The machine does not answer any more; the text has the end of its kernel's log."""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    def clean(self) -> Ended:
        """Itself, if it ended with 0."""
        assert self.code == 0, self
        return self


class Session:
    """A guest that is up and takes commands; a context manager that ends it."""

    def __init__(
        self, kernel: Kernel, boot: Boot, share: Path, *, with_systemd: bool = False
    ) -> None:
        self.kernel = kernel
        self.share = share
        self._jobs = 0
        self._line = b""
        (share / JOBS).mkdir(parents=True, exist_ok=True)
        self._machine = Machine(
            kernel,
            boot,
            WORKER,
            share,
            with_systemd=with_systemd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._slowness = 1.0
        try:
            self._answer("ready", BOOT_SECONDS)
            self._slowness = self._measure()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def run(self, *command: object, seconds: float = 60) -> Ended:
        """Runs a command as root in /tmp, bounded."""
        return self.shell(shlex.join(map(str, command)), seconds)

    def _measure(self) -> float:
        """Seconds here that one of the guest's takes while its CPU is busy, 1 at least.

        Where time is counted in instructions that is many, and limits of commands are the guest's.
        """
        began = time.monotonic()
        words = self.shell(BUSY, BOOT_SECONDS).clean().out.split()
        before, after = float(words[0]), float(words[2])
        return max(1.0, (time.monotonic() - began) / max(after - before, 0.01))

    def shell(self, script: str, seconds: float = 60) -> Ended:
        """Runs a shell's script as root in /tmp, for so many seconds of the guest's clock at most.

        What it left running is ended.
        """
        self._jobs += 1
        job = self.share / JOBS / str(self._jobs)
        job.with_suffix(".sh").write_text(script)
        inner = f"/share/{JOBS}/{job.name}.sh"
        job.write_text(f"timeout -s KILL {seconds:g} sh {inner}\n")
        try:
            self._machine.process.stdin.write(f"{self._jobs}\n".encode())
        except BrokenPipeError:
            raise self._death("it is off") from None
        patience = seconds * self._slowness * SLOWER + GRACE_SECONDS
        code = int(self._answer(f"{self._jobs} ", patience))
        out, err = (job.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
        return Ended(code, out, err)

    def _answer(self, beginning: str, seconds: float) -> str:
        """The rest of the next line with that beginning; others are none of ours."""
        deadline = time.monotonic() + seconds
        while True:
            line = self._next_line(self._machine.process.stdout, deadline).decode(errors="replace")
            if line.startswith(beginning):
                return line.removeprefix(beginning)

    def _next_line(self, stream: IO[bytes], deadline: float) -> bytes:
        with selectors.DefaultSelector() as ready:
            ready.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._line:
                if not ready.select(max(0, deadline - time.monotonic())):
                    raise self._death("no answer in time")
                if not (data := stream.read(4096)):
                    raise self._death("it is off")
                self._line += data
        line, _, self._line = self._line.partition(b"\n")
        return line

    def _death(self, how: str) -> GuestDied:
        return GuestDied(f"{how}; its kernel:\n{self._machine.end_of_log()}")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self._machine.__exit__(*error)
        for stream in (self._machine.process.stdin, self._machine.process.stdout):
            stream.close()
