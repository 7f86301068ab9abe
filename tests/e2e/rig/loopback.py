"""A loopback interface on which the kernel takes long for each packet."""

from __future__ import annotations

import ctypes
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

#: From <asm-generic/socket.h> and <linux/if_ether.h>.
SO_ATTACH_FILTER, ETH_P_IP = 26, 0x0800
#: How many sockets look at each packet, and how often each divides: over 50 µs together.
TAPS, DIVISIONS = 20, 1000
#: Instructions of a filter (<linux/filter.h>): code, two jumps, and a constant.
LOAD, DIVIDE, TAKE_NOTHING = (0x00, 0, 0, 0xFFFFFFFF), (0x34, 0, 0, 1), (0x06, 0, 0, 0)


@contextmanager
def slow_loopback() -> Iterator[None]:
    """Until the end, each packet that comes in on `lo` costs a long softirq."""
    program = (LOAD, *[DIVIDE] * DIVISIONS, TAKE_NOTHING)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *word) for word in program))
    with ExitStack() as stack:
        for _ in range(TAPS):
            tap = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
            attached = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
            tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)
            tap.bind(("lo", ETH_P_IP))
        took = send_ns()
        assert took > 50_000, f"a send takes {took} ns: the filters are too fast"
        yield


def send_ns() -> int:
    """How long a send over the loopback takes, its delivery included: of some, the least."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        sender.connect(receiver.getsockname())
        times = []
        for _ in range(10):
            begin = time.perf_counter_ns()
            sender.send(b"?")
            times.append(time.perf_counter_ns() - begin)
        return min(times)
