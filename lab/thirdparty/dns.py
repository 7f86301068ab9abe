"""Questions to DNS servers, and a server behind them that takes its time."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST_S = 2.0
#: What follows the name in a question: its kind (A) and class (Internet). And in an answer: a
#: pointer to the name, the same, no time to live, and the address 127.0.0.2.
KIND = b"\0\1\0\1"
ADDRESS = b"\xc0\x0c" + KIND + b"\0\0\0\0\0\4\x7f\0\0\2"
#: Bytes of a header, and the flags of an answer.
HEADER, ANSWERS = 12, b"\x81\x80"


def question() -> bytes:
    """For the address of a name that nobody has asked for before."""
    labels = (b"h%08x" % random.getrandbits(32), b"example", b"com")
    name = b"".join(bytes([len(label)]) + label for label in labels) + b"\0"
    return struct.pack("!6H", random.getrandbits(16), 0x100, 1, 0, 0, 0) + name + KIND


def answer(asked: bytes) -> bytes:
    """The answer to such a question."""
    end = asked.index(b"\0", HEADER) + 1 + len(KIND)
    counts = struct.pack("!4H", 1, 1, 0, 0)
    return asked[:2] + ANSWERS + counts + asked[HEADER:end] + ADDRESS


def ask(port: int, seconds: float = LONGEST_S) -> bool:
    """Asks once; whether there was an answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", port))
        client.settimeout(seconds)
        try:
            client.send(question())
            return bool(client.recv(4096))
        except OSError:
            return False


def load(port: int, seconds: float, rate: float, clients: int) -> None:
    """Asks at random moments, at that rate together."""

    def run() -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            ask(port)
            time.sleep(random.expovariate(rate / clients))

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def upstream(delay_s: float) -> Iterator[int]:
    """A server that answers each question after so long; its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(("127.0.0.1", 0))
        own.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                try:
                    asked, who = own.recvfrom(4096)
                except TimeoutError:
                    continue
                threading.Timer(delay_s, own.sendto, (answer(asked), who)).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield own.getsockname()[1]
        finally:
            over.set()
            thread.join()
            time.sleep(2 * delay_s)  # the last ones' timers
