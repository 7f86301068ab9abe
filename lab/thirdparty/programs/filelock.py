"""An HTTP server with a thread for each connection that locks a file (flock) twice for each
answer.

usage: filelock.py PORT FILE
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import threading

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone"


def serve(connection: socket.socket, path: str) -> None:
    """One client's connection."""
    file = os.open(path, os.O_RDONLY)
    while part := connection.recv(4096):
        for _ in range(part.count(b"\r\n\r\n")):
            for _ in range(2):
                fcntl.flock(file, fcntl.LOCK_EX)
                fcntl.flock(file, fcntl.LOCK_UN)
            connection.sendall(ANSWER)
    os.close(file)
    connection.close()


def main(port: int, path: str) -> None:
    """Serves for ever."""
    with socket.create_server(("127.0.0.1", port), backlog=512) as listening:
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection, path), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
