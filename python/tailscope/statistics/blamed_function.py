"""The function of a stack to which the time of a cause is put down.

Of a cause on the CPU, it is the innermost one. Of a wait, it is the innermost one of the program's
own: that it waited in the kernel, through the C library, the cause says already. A page fault
counts as a wait, although the kernel has the CPU for it: a function of the program touched the
memory.

Where a program in Python is on the CPU in C functions of the interpreter, or in some without a
name, these work for the function of Python around them. A wait belongs to the innermost function
that is not in Python's standard library.
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


#: Files that have the interpreter of Python.
INTERPRETERS = re.compile(r"((lib)?python[\d.]*t?|uwsgi[\w-]*)(\.so[\w.]*)?")
#: Functions by which the interpreter calls those that do something.
CALLING = re.compile(r"_?Py[A-Z]\w*|\w*vectorcall\w*|(cfunction|method|slot|type|wrap)_\w*")
#: Sources of Python's standard library.
STANDARD = re.compile(r".*/lib(64)?/python3\.\d+t?/(?!(site|dist)-packages/).*|<frozen .*>")


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
    place = on_cpu(stack) if cause in ON_CPU else waiting(stack)
    frame = stack.frames[place]
    # Without symbols, all functions of a file have the same name, so each address counts by itself.
    key = (frame.function, frame.module)
    around = stack.frames[place + 1 :] if stack.whole else ()
    if first_of_python(stack) is not None:
        around = tuple(caller for caller in around if not is_interpreters(caller))
    callers = around[:CALLERS]
    users = [inner for inner in stack.frames[:place] if inner.module != KERNEL]
    if frame.python:
        users = [inner for inner in users if not CALLING.fullmatch(inner.function)]
    through = users[-1].name if users and users[-1].function else ""
    return Blamed(key, frame, tuple(caller.name for caller in callers), through)


def on_cpu(stack: Stack) -> int:
    """The place of the function that has the CPU."""
    if first_of_python(stack) is None:
        return 0
    return next(n for n, frame in enumerate(stack.frames) if not works_for_python(frame))


def waiting(stack: Stack) -> int:
    """The place of the function that waits."""
    python = first_of_python(stack)
    if python is None:
        own = (number for number, frame in enumerate(stack.frames) if is_own(frame))
        return next(own, first_of_user(stack))
    last = max(number for number, frame in enumerate(stack.frames) if frame.python)
    own = (
        number
        for number, frame in enumerate(stack.frames[: last + 1])
        if is_own(frame) and not (works_for_python(frame) or STANDARD.fullmatch(frame.module))
    )
    return next(own, python)


def first_of_python(stack: Stack) -> int | None:
    """The innermost function of Python."""
    return next((number for number, frame in enumerate(stack.frames) if frame.python), None)


def is_interpreters(frame: Frame) -> bool:
    """Whether a frame is of Python's interpreter, which runs the functions of Python."""
    return not frame.python and bool(INTERPRETERS.fullmatch(Path(frame.module).name))


def works_for_python(frame: Frame) -> bool:
    """Whether the time of a frame, called from Python, is that of the function of Python."""
    if frame.python or frame.module == KERNEL:
        return False
    is_helper = is_interpreters(frame) or LIBRARIES.fullmatch(Path(frame.module).name)
    return bool(is_helper) or not frame.function


def first_of_user(stack: Stack) -> int:
    """The innermost frame that is not the kernel's; of a stack of the kernel's alone, the first."""
    users = (number for number, frame in enumerate(stack.frames) if frame.module != KERNEL)
    return next(users, 0)


def is_own(frame: Frame) -> bool:
    """Whether a frame is the program's own, and not the kernel's, a C library's or a language's."""
    if frame.python:
        return not STANDARD.fullmatch(frame.module)
    if frame.module in (KERNEL, NOWHERE) or LIBRARIES.fullmatch(Path(frame.module).name):
        return False
    return not RUNTIMES.match(frame.function)
