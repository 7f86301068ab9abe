"""The kernel's clock, slewed as NTP does it (adjtimex(2)), and set right again."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

#: struct timex, as far as it is used here: frequencies are in units of 2^-16 millionths.
_ADJ_FREQUENCY = 0x0002
_UNITS = 1 << 16


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
    """Whatever is done to the frequency inside is undone. OSError: it may not be changed here."""
    before = _adjust(0, 0)
    _adjust(_ADJ_FREQUENCY, before)
    try:
        yield
    finally:
        _adjust(_ADJ_FREQUENCY, before)
