"""A server whose connections are served by another process than the one that accepts them.

    handover.py PORT pass     a worker gets each accepted connection over a Unix socket
    handover.py PORT fork     a child is made for each connection

Its first line is the process to record: the worker, or the one that makes the children.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


def serve(connection: socket.socket) -> None:
    """Answers each request until the client ends the connection."""
    with connection, connection.makefile("rb") as lines:
        while lines.readline():
            while lines.readline().strip():
                pass
            connection.sendall(ANSWER)


def work(inbox: socket.socket) -> None:
    """Serves what is passed, each connection in a thread."""
    while True:
        _, descriptors, _, _ = socket.recv_fds(inbox, 1, 1)
        if not descriptors:
            return
        connection = socket.socket(fileno=descriptors[0])
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


def pass_on(listening: socket.socket) -> None:
    """Passes each connection to a worker."""
    outbox, inbox = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    worker = os.fork()
    if worker == 0:
        outbox.close()
        listening.close()
        work(inbox)
        os._exit(0)
    inbox.close()
    print(worker, flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            socket.send_fds(outbox, [b"."], [connection.fileno()])


def fork(listening: socket.socket) -> None:
    """Makes a child for each connection."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print(os.getpid(), flush=True)
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            serve(connection)
            os._exit(0)
        connection.close()


def main() -> None:
    """Serves the port."""
    listening = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=1000)
    {"pass": pass_on, "fork": fork}[sys.argv[2]](listening)


if __name__ == "__main__":
    main()
