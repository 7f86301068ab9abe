"""Waiting for what must come, for a bounded time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T], what: str | Callable[[], str], seconds: float = 60) -> T:
    """The first true value of the condition; fails with `what` if none comes in time.

    `what` may be a function, which is called then.
    """
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        if time.monotonic() > deadline:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:g} s, and not yet: {said}")
        time.sleep(0.02)
