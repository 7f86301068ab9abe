"""The kernel's clock, slewed as NTP does it (adjtimex(2)), and set right again."""

from __future__ import annotations

import ctypes
import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: struct timex, as far as it is used here: frequencies are in units of 2^-16 millionths.
_ADJ_FREQUENCY = 0x0002
_UNITS = 1 << 16
#: Who slews the clock holds this file, in whichever run of the tests.
LOCK = Path(tempfile.gettempdir()) / "tailscope-slews-the-clock"


class _Timex(ctypes.Structure):
    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("rest", ctypes.c_byte * 256),
    )


def _adjust(modes: int, units: int) -> int:
    """Sets what `modes` says, and gives back the frequency that is in force."""
    timex = _Timex(modes=modes, freq=units)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"adjtimex: {os.strerror(number)}")
    return timex.freq


def slew(millionths: int) -> None:
    """From now on the clock is so much faster than its hardware; 500 is the most that NTP does."""
    _adjust(_ADJ_FREQUENCY, millionths * _UNITS)


@contextmanager
def set_right_again() -> Iterator[None]:
    """Whatever is done to the frequency inside is undone. OSError: it may not be changed here.

    The machine has one clock: of several runs that want it one has it, and the others wait.
    """
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _set_right_again():
            yield


@contextmanager
def _set_right_again() -> Iterator[None]:
    before = _adjust(0, 0)
    _adjust(_ADJ_FREQUENCY, before)
    try:
        yield
    finally:
        _adjust(_ADJ_FREQUENCY, before)
