"""A server whose requests wait for one thing each, WAIT_S long, as their paths say.

    waitserver.py PORT BACKEND_PORT

A thread serves one connection. The backend, a process of its own, answers in two parts. After each
answer to /report a thread of that name computes for REPORT_S: others wait for Python's interpreter.
"""

import os
import select
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

WAIT_S = 0.006
REPORT_S = 0.04
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n"
FIRST, REST = b"ok", b"ok"
REPORTS = threading.Event()


def request(connection: socket.socket) -> bytes:
    """The first line of the next request, which ends with an empty line; nothing at the end."""
    text = b""
    while not text.endswith(b"\r\n\r\n"):
        more = connection.recv(4096)
        if not more:
            return b""
        text += more
    return text.split(b"\r\n")[0]


def ask(backend: socket.socket) -> None:
    backend.sendall(b"GET /asked HTTP/1.1\r\n\r\n")
    left = len(HEAD + FIRST + REST)
    while left:
        more = backend.recv(left)
        if not more:
            sys.exit("the backend has ended")
        left -= len(more)


def serve(connection: socket.socket, backend_port: int) -> None:
    backend = socket.create_connection(("127.0.0.1", backend_port))
    while line := request(connection):
        wanted = line.split()[1]
        if wanted == b"/child":
            subprocess.run(["/bin/sleep", str(WAIT_S)], check=True)
        elif wanted == b"/timeout":
            select.select([], [], [], WAIT_S)
        elif wanted == b"/backend":
            ask(backend)
        connection.sendall(HEAD + FIRST)
        if wanted == b"/parts":
            time.sleep(WAIT_S)
        connection.sendall(REST)
        if wanted == b"/report":
            REPORTS.set()


def report() -> None:
    Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("report")
    while REPORTS.wait():
        REPORTS.clear()
        end = time.monotonic() + REPORT_S
        while time.monotonic() < end:
            sum(range(500))


def answer_in_parts(connection: socket.socket) -> None:
    while request(connection):
        connection.sendall(HEAD + FIRST)
        time.sleep(WAIT_S)
        connection.sendall(REST)


def listen(port: int, serve_one: object, *arguments: object) -> None:
    listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
    while True:
        connection, _ = listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve_one, args=(connection, *arguments), daemon=True).start()


def main() -> None:
    port, backend_port = int(sys.argv[1]), int(sys.argv[2])
    parent = os.getpid()
    if os.fork() == 0:
        threading.Thread(target=listen, args=(backend_port, answer_in_parts), daemon=True).start()
        while os.getppid() == parent:
            time.sleep(0.1)
        os._exit(0)
    while socket.socket().connect_ex(("127.0.0.1", backend_port)):
        time.sleep(0.01)
    threading.Thread(target=report, daemon=True).start()
    listen(port, serve, backend_port)


if __name__ == "__main__":
    main()
