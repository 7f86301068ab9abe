"""A small HTTP server that a guard stands in front of: `replica.py PORT NAME LOG [HOST]`.

It appends a line to LOG for each request that it executes: the method, and the body or the path.

GET /         its name            GET /slow?ms=N    its name, N ms later
GET /fail     500
GET /hold?ms=N    its name; no thread runs for N ms, without being stopped
GET /mixed    500 from `second`, else its name after 1.5 s, with ?now at once
GET /nagle    its name, the head and the body in two segments, without TCP_NODELAY
GET /stream   two chunks, the second when GET /go has come
GET /large?bytes=N    as many zeroes
GET /headers  the request's headers, as lines
POST /        its body            GET with Upgrade: echo, then whatever the client sends, reversed
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

NAME = ""
LOG = -1
GO = threading.Event()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one segment
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass

    def executed(self, what: str) -> None:
        os.write(LOG, f"{self.command} {what}\n".encode())

    def answer(self, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Replica", NAME)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.executed(self.path)
        if self.headers.get("Upgrade") == "echo":
            self.upgrade()
        elif url.path == "/slow":
            time.sleep(int(parse_qs(url.query)["ms"][0]) / 1000)
            self.answer(NAME.encode())
        elif url.path == "/hold":
            # It sleeps, and keeps the interpreter's lock.
            ctypes.PyDLL(None).usleep(int(parse_qs(url.query)["ms"][0]) * 1000)
            self.answer(NAME.encode())
        elif url.path == "/fail" or (url.path == "/mixed" and NAME == "second"):
            self.answer(b"failed", 500)
        elif url.path == "/mixed":
            time.sleep(0 if url.query == "now" else 1.5)
            self.answer(NAME.encode())
        elif url.path == "/nagle":
            self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
            self.send_response(200)
            self.send_header("Content-Length", str(len(NAME)))
            self.end_headers()
            self.wfile.flush()
            self.wfile.write(NAME.encode())
            self.wfile.flush()
        elif url.path == "/stream":
            self.stream()
        elif url.path == "/large":
            self.answer(bytes(int(parse_qs(url.query)["bytes"][0])))
        elif url.path == "/headers":
            self.answer(str(self.headers).encode())
        else:
            if url.path == "/go":
                GO.set()
            self.answer(NAME.encode())

    do_HEAD = do_GET

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding"):
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.executed(body.decode(errors="replace"))
        self.answer(body)

    do_PUT = do_POST

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        self.wfile.flush()
        GO.wait(30)
        self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")
        self.wfile.flush()

    def upgrade(self) -> None:
        self.send_response(101)
        self.send_header("Connection", "Upgrade")
        self.send_header("Upgrade", "echo")
        self.end_headers()
        self.wfile.flush()
        while line := self.rfile.readline():
            self.wfile.write(line.rstrip(b"\n")[::-1] + b"\n")
            self.wfile.flush()
        self.close_connection = True


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True


if __name__ == "__main__":
    NAME = sys.argv[2]
    LOG = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    HOST = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"
    Server((HOST, int(sys.argv[1])), Handler).serve_forever()
