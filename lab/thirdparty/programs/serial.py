"""Python's own HTTP server with one thread: it accepts the next connection after an answer.

It does something else for 20 ms now and then. Who connects meanwhile waits in the accept queue.

usage: serial.py PORT
"""

from __future__ import annotations

import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers every GET alike, in one write."""

    def do_GET(self) -> None:
        body = b"an answer\n"
        head = f"HTTP/1.0 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, *_: object) -> None:
        """Says nothing: the terminal is not what is measured."""


class Server(HTTPServer):
    """With a queue that keeps all that come in 20 ms."""

    request_queue_size = 512
    due = 0.0

    def service_actions(self) -> None:
        """What a server does between two connections."""
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + 0.2
            time.sleep(0.020)


if __name__ == "__main__":
    Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
