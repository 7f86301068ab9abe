"""Python's own HTTP server with a thread for each connection.

It writes an answer's head and its body apart. With the connection kept, Nagle's algorithm holds the
body back until the client acknowledges the head, and the client delays that by 40 ms.

usage: threads.py PORT
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Answers every GET alike."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"an answer\n"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing: the terminal is not what is measured."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
