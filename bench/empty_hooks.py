"""Programs that do nothing, on kernel tracepoints: what a hook costs before anybody's code runs.

Loaded through bpf(2) itself, as no loader of this size is on every machine: two instructions
(r0 = 0; exit), attached as raw tracepoints, the cheapest attachment that a stock kernel without
fentry offers. Closing the descriptors takes everything away.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterator, Sequence

_BPF_PROG_LOAD, _BPF_RAW_TRACEPOINT_OPEN = 5, 17
_BPF_PROG_TYPE_RAW_TRACEPOINT = 17
_NR_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
#: mov r0, 0; exit (struct bpf_insn: code, registers, offset, immediate).
_NOTHING = struct.pack("<BBhi", 0xB7, 0, 0, 0) + struct.pack("<BBhi", 0x95, 0, 0, 0)


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"), 128)
    descriptor = libc.syscall(_NR_BPF, command, buffer, 128)
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"bpf({command}): {os.strerror(error)}")
    return int(descriptor)


@contextlib.contextmanager
def empty_hooks(tracepoints: Sequence[str]) -> Iterator[None]:
    """One empty program on each of these tracepoints; needs CAP_BPF and CAP_PERFMON."""
    code = ctypes.create_string_buffer(_NOTHING, len(_NOTHING))
    licence = ctypes.create_string_buffer(b"GPL")
    load = struct.pack(
        "<IIQQ",
        _BPF_PROG_TYPE_RAW_TRACEPOINT,
        len(_NOTHING) // 8,
        ctypes.addressof(code),
        ctypes.addressof(licence),
    )
    with contextlib.ExitStack() as held:
        for name in tracepoints:
            program = _bpf(_BPF_PROG_LOAD, load)
            held.callback(os.close, program)
            text = ctypes.create_string_buffer(name.encode())
            attach = struct.pack("<QI", ctypes.addressof(text), program)
            held.callback(os.close, _bpf(_BPF_RAW_TRACEPOINT_OPEN, attach))
        yield
