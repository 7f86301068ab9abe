# SPDX-License-Identifier: Apache-2.0
"""An HTTP server on which a function's name lies in memory that makes who reads it wait for ever.

python3.11 unreadable.py PORT

The memory is one that only its process fills (userfaultfd(2)), and it never does. It ends with
status 77 where it may not do that.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USERFAULTFD = {"x86_64": 323, "aarch64": 282}
#: _IOWR(UFFDIO, …) of linux/userfaultfd.h.
UFFDIO_API, UFFDIO_REGISTER = 0xC018AA3F, 0xC020AA00
API, MODE_MISSING = 0xAA, 1
#: Where a code object of CPython 3.11 has the address of its name.
NAME = 128
SECONDS = 0.005


def spin() -> None:
    until = time.thread_time() + SECONDS
    while time.thread_time() < until:
        pass


def readable() -> None:
    spin_too(time.thread_time() + SECONDS)


def spin_too(until: float) -> None:
    while time.thread_time() < until:
        pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        spin()
        readable()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def log_message(self, *_: object) -> None:
        pass


def never_filled(memory: mmap.mmap) -> int:
    """Makes it memory that only this process could fill. Returns its address."""
    libc = ctypes.CDLL(None, use_errno=True)
    uffd = libc.syscall(USERFAULTFD[platform.machine()], os.O_CLOEXEC)
    if uffd < 0:
        sys.exit(77)
    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    fcntl.ioctl(uffd, UFFDIO_API, struct.pack("QQQ", API, 0, 0))
    area = struct.pack("QQQQ", at, mmap.PAGESIZE, MODE_MISSING, 0)
    fcntl.ioctl(uffd, UFFDIO_REGISTER, area)
    return at


MEMORY = mmap.mmap(-1, mmap.PAGESIZE)
ctypes.c_uint64.from_address(id(spin.__code__) + NAME).value = never_filled(MEMORY)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
