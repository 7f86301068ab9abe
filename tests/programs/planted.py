# SPDX-License-Identifier: Apache-2.0
"""An HTTP server of which one request in 50 also calls a planted function, which takes 10 ms.

python3 planted.py PORT MODE, where MODE is cpu, sleep, lock or fault
"""

from __future__ import annotations

import mmap
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECONDS = 0.01
SHARED = threading.Lock()
CONTENT = bytes(32 << 20)


def usual_work() -> int:
    total = 0
    for i in range(3000):
        total = (total * 17 + i) % 1000003
    return total


class Planted:
    """The functions, of which one is called."""

    def cpu(self) -> int:
        start, total = time.thread_time(), 0
        while time.thread_time() - start < SECONDS:
            for i in range(3000):
                total = (total * 31 + i) % 1000003
        return total

    def sleep(self) -> None:
        time.sleep(SECONDS)

    def lock(self) -> None:
        """Another thread has the lock for the time."""
        has_it = threading.Event()
        threading.Thread(target=hold, args=[has_it]).start()
        has_it.wait()
        self.lock_itself()

    def fault(self) -> None:
        with mmap.mmap(-1, len(CONTENT)) as fresh:
            fresh.write(CONTENT)

    def lock_itself(self) -> None:
        with SHARED:
            pass


def hold(has_it: threading.Event) -> None:
    with SHARED:
        has_it.set()
        time.sleep(3 * SECONDS)  # the waiter may be late


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    requests = 0

    def do_GET(self) -> None:
        Handler.requests += 1
        usual_work()
        if Handler.requests % 50 == 0:
            PLANTED()
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n")

    def log_message(self, *_: object) -> None:
        pass


PLANTED = getattr(Planted(), sys.argv[2])
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
