"""A program on a terminal, seen as a person sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Sequence

import pyte

from rig import installed
from rig.processes import end, threads_of
from rig.waiting import until

#: What leaves the screen that full-screen programs have for themselves, and shows the cursor.
BACK, CURSOR = b"\x1b[?1049l", b"\x1b[?25h"


class Terminal:
    """A terminal with one program in it; a context manager that ends that."""

    def __init__(self, *command: object, size: tuple[int, int] = (80, 24), **env: str) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        self._resize(*size)
        self.modes = termios.tcgetattr(self.slave)
        environment = {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env=environment,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def _resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def resize(self, columns: int, lines: int) -> None:
        """As dragging the window's corner does."""
        self._resize(columns, lines)
        self.screen.resize(lines, columns)
        self.process.send_signal(signal.SIGWINCH)

    def look(self) -> str:
        """What is on the screen now."""
        while select.select([self.master], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                came = os.read(self.master, 1 << 16)
                self.bytes += came
                self.stream.feed(came)
        return "\n".join(line.rstrip() for line in self.screen.display)

    def shows(self, *texts: str, seconds: float = 30) -> str:
        """Waits until all of these are on the screen."""
        try:
            return until(
                lambda: next((s for s in [self.look()] if all(t in s for t in texts)), ""),
                f"the screen shows {texts}",
                seconds,
            )
        except AssertionError as error:
            where = threads_of(self.pid)
            raise AssertionError(f"{error}; it shows\n{self.look()}\n{where}") from None

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self.master, keys.encode())

    def ended(self, seconds: float = 30) -> int:
        """Its exit code, once it has ended; reads on meanwhile, so that it never waits for us."""
        until(lambda: (self.look(), self.process.poll() is not None)[1], "it ends", seconds)
        self.look()
        return self.process.returncode

    def check_given_back(self) -> None:
        """The terminal is as it was before the program."""
        assert termios.tcgetattr(self.slave) == self.modes
        assert self.bytes.rfind(BACK) > self.bytes.rfind(b"\x1b[?1049h") > -1
        assert self.bytes.rfind(CURSOR) > self.bytes.rfind(b"\x1b[?25l") > -1

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        end(self.process)
        os.close(self.master)
        os.close(self.slave)


def top(*arguments: object) -> Sequence[object]:
    """The command line of `tailscope top`."""
    return (installed.tailscope(), "top", *arguments)
