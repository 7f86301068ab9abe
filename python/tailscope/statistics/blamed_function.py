"""The function of a stack to which the time of a cause is put down.

Of a cause on the CPU, it is the innermost one. Of a wait, it is the innermost one of the program's
own: that it waited in the kernel, through the C library, the cause says already. A page fault
counts as a wait, although the kernel has the CPU for it: a function of the program touched the
memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tailscope.ledger.causes import RUNNING
from tailscope.ledger.stacks import KERNEL, NOWHERE, Frame, Stack

#: Callers that are shown, at most.
CALLERS = 3
#: Causes whose time is put down to the innermost function, be it the kernel's.
ON_CPU = frozenset({RUNNING, "softirq_net", "softirq_timer", "softirq_other", "irq"})
#: Files whose functions are not a program's own: they wait on behalf of their callers.
LIBRARIES = re.compile(
    r"(libc|libpthread|libm|libdl|librt|libgcc_s|libstdc\+\+|libc\+\+|ld-linux[\w-]*|ld-musl[\w-]*"
    r"|libc\.musl[\w-]*)([-.][\w.]*)?\.so[\w.]*|\[vdso\]"
)
#: The same of functions that compilers and languages put into the program's own file.
RUNTIMES = re.compile(
    r"(<?(std|core|alloc|__gnu_cxx|__gthread\w*|parking_lot\w*|rustix|libc)::|runtime[./]|syscall\."
    r"|internal/|sync\.|time\.Sleep|__?(lll|futex|pthread|GI_|libc|clock_)|pthread_|clone3?$"
    r"|nanosleep$|clock_nanosleep|usleep$|sleep$)"
)


@dataclass(frozen=True)
class Blamed:
    """The function of a stack that a cause is put down to, and what is around it."""

    key: tuple[str, str]
    frame: Frame
    callers: tuple[str, ...]
    through: str


def blamed(stack: Stack, cause: str) -> Blamed | None:
    """The function of a stack that a cause is put down to; None: the stack is empty."""
    if not stack.frames:
        return None
    place = 0
    if cause not in ON_CPU:
        own = (number for number, frame in enumerate(stack.frames) if is_own(frame))
        place = next(own, first_of_user(stack))
    frame = stack.frames[place]
    # Without symbols, all functions of a file have the same name, so each address counts by itself.
    key = (frame.function, frame.module)
    callers = stack.frames[place + 1 : place + 1 + CALLERS] if stack.whole else ()
    users = [inner for inner in stack.frames[:place] if inner.module != KERNEL]
    through = users[-1].name if users and users[-1].function else ""
    return Blamed(key, frame, tuple(caller.name for caller in callers), through)


def first_of_user(stack: Stack) -> int:
    """The innermost frame that is not the kernel's; of a stack of the kernel's alone, the first."""
    users = (number for number, frame in enumerate(stack.frames) if frame.module != KERNEL)
    return next(users, 0)


def is_own(frame: Frame) -> bool:
    """Whether a frame is the program's own, and not the kernel's, a C library's or a language's."""
    if frame.module in (KERNEL, NOWHERE) or LIBRARIES.fullmatch(Path(frame.module).name):
        return False
    return not RUNTIMES.match(frame.function)
